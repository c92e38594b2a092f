"""More pairs from a corpus: none twice, none lost by a kill, always the same result."""

import json
import shutil

import pytest
import tiny

from tfformer import RunError, load_translator
from training import diversify
from training.trainer.lock import alone

pytestmark = pytest.mark.usefixtures("loaded_once")
PAIRS = [("a", "x"), ("b", "y"), ("c", "x")]
SAYS = {
    "one": {"a": "x", "b": "z", "c": " "},  # "x" exists already, " " is blank
    "two": {"a": "w", "b": "z", "c": "v"},  # "z" occurs twice
    "back": {"x": "a", "y": "d"},
}


def say(model, texts):
    return [SAYS[model][text] for text in texts]


def test_each_new_pair_is_added_once():
    found = diversify.diversify(PAIRS, ["one", "two"], ["back"], say)
    assert found == [*PAIRS, ("b", "z"), ("a", "w"), ("c", "v"), ("d", "y")]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny.save_small_run(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture
def corpus(tmp_path):
    sources, targets = tiny.sentences(13, seed=3), tiny.sentences(13, seed=5)
    for name, texts in (("train.en", sources), ("train.de", targets)):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts))
    return sources, targets


def command(folder, run, *more):
    files = [f"--source={folder}/train.en", f"--target={folder}/train.de"]
    return diversify.main([*files, f"--out={folder}/out", "--forward", str(run), *more])


def test_command_writes_the_translations_of_the_run(run, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(diversify, "CHUNK", 5)
    assert command(tmp_path, run, "--backward", str(run)) == 0
    translator = load_translator(run)
    expected = diversify.diversify(
        [*zip(*corpus, strict=True)],
        [0],
        [0],
        lambda _, texts: [" ".join(one.split()) for one in translator.translate(texts)],
    )
    found = [
        (tmp_path / "out" / f"{side}.txt").read_text().splitlines() for side in ("source", "target")
    ]
    assert [*zip(*found, strict=True)] == expected
    assert len(expected) > 20
    assert f"{len(expected)} pairs, made from 13" in capsys.readouterr().out


def test_interrupted_translation_resumes(run, corpus, tmp_path, monkeypatch, loaded_once):
    """Killed in the middle of a line, after five written lines."""
    lines = 5
    monkeypatch.setattr(diversify, "CHUNK", lines)
    whole = diversify.translated(run, corpus[0], tmp_path, 7)
    (path,) = tmp_path.glob("*.txt")
    content = path.read_bytes()
    kept = b"".join(content.splitlines(keepends=True)[:lines])
    part = path.with_suffix(".part")
    part.write_bytes(kept + b"half a li")
    path.unlink()
    asked = []

    def counted(directory, **options):
        service = loaded_once(directory, **options)

        def translate(texts, size):
            asked.extend(texts)
            return type(service).translate(service, texts, size)

        monkeypatch.setattr(service, "translate", translate)
        return service

    monkeypatch.setattr("tfformer.run.load_service", counted)
    assert diversify.translated(run, corpus[0], tmp_path, 7) == whole
    assert asked == corpus[0][lines:]
    assert path.read_bytes() == content
    assert not part.exists()
    # Existing translations are not made again; other texts are translated.
    asked.clear()
    assert diversify.translated(run, corpus[0], tmp_path, 7) == whole
    assert not asked
    diversify.translated(run, corpus[1], tmp_path, 7)
    assert asked == corpus[1]


def test_a_mistake_gives_one_line_error(run, corpus, tmp_path, capsys):
    (tmp_path / "train.fr").write_text("one line\n")
    (tmp_path / "blank.de").write_text(" \n" * 13)
    files = [f"--source={tmp_path}/train.en", f"--out={tmp_path}/out"]
    for words, code, message in (
        ([f"--target={tmp_path}/train.de"], 2, "give --forward, --backward or both"),
        ([f"--target={tmp_path}/train.fr", "--forward", str(run)], 1, "lines"),
        ([f"--target={tmp_path}/blank.de", "--forward", str(run)], 1, "a blank text"),
        ([f"--target={tmp_path}/train.de", "--forward", "nowhere"], 1, "nowhere is no directory"),
    ):
        assert diversify.main([*files, *words]) == code
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
        assert not [*tmp_path.glob("out/*.txt")]


def changed(run, folder, **fields):
    """A copy of the run whose configuration has other fields."""
    copy = shutil.copytree(run, folder / "changed")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **fields}))
    return copy


def test_run_of_another_family_is_refused(run, tmp_path):
    other = changed(run, tmp_path, family="language-model")
    with pytest.raises(RunError, match="language-model"):
        diversify.translated(other, ["a"], tmp_path, 7)


def test_a_run_that_changes_meanwhile_is_refused(run, tmp_path, monkeypatch):
    """Translations stored under the name of some weights belong to them."""
    copy = shutil.copytree(run, tmp_path / "copy")

    def publish(*_, **__):
        (copy / "config.json").write_bytes((other / "config.json").read_bytes())

    other = changed(run, tmp_path, training={"bleu": 1.0})
    monkeypatch.setattr("tfformer.run.load_service", publish)
    with pytest.raises(RunError, match="changed while it was read"):
        diversify.translated(copy, ["a"], tmp_path, 7)
    assert not [*tmp_path.glob("*.part")]


def test_a_file_of_another_number_of_lines_is_refused(run, tmp_path):
    diversify.translated(run, ["a", "b"], tmp_path, 7)
    [path] = tmp_path.glob("*.txt")
    path.write_bytes(path.read_bytes() + b"more\n")
    with pytest.raises(RunError, match="must have 2 lines, got 3: remove it"):
        diversify.translated(run, ["a", "b"], tmp_path, 7)


def test_output_into_the_corpus_folder_is_refused(run, corpus, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    for side, name in (("source", "train.en"), ("target", "train.de")):
        (out / f"{side}.txt").write_bytes((tmp_path / name).read_bytes())
    before = (out / "source.txt").read_bytes()
    files = [f"--source={out}/source.txt", f"--target={out}/target.txt", f"--out={out}"]
    assert diversify.main([*files, "--forward", str(run)]) == 2
    assert "--out must not be the corpus's folder" in capsys.readouterr().err
    assert (out / "source.txt").read_bytes() == before


def test_concurrent_use_of_the_output_folder_is_refused(run, corpus, tmp_path, capsys):
    with alone(tmp_path / "out", "use"):
        assert command(tmp_path, run) == 1
    assert "is in use already" in capsys.readouterr().err
