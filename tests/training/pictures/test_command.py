"""The command draws all pictures of a translator, and reports in one line what it cannot draw."""

import functools
import re

import pytest
import tiny

import tfformer
from tfformer import Tokenizer
from tfformer.config import RecurrentConfig
from tfformer.models.recurrent import Recurrent
from training import picture
from training.report.picture import pyplot

pytestmark = pytest.mark.usefixtures("loaded_once")
KINDS = [f"{how}-{what}" for what in ("encoder", "decoder", "cross") for how in ("heads", "lines")]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    learn = functools.partial(Tokenizer.train, tiny.sentences(97), vocabulary_size=347)
    search = {"max_source_length": 17, "max_target_length": 13, "beam_width": 3}
    return tiny.save_run(tmp_path_factory.mktemp("run") / "run", learn, search)


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot().close("all")


@pytest.mark.slow
def test_without_a_log_all_pictures_except_curves_are_written(run, tmp_path, capsys):
    """It has no log of a training, so no curves."""
    out = tmp_path / "new" / "pictures"
    assert picture.main([str(run), "a little house", "--out", str(out), "--format", "png"]) == 0
    names = ["architecture", *KINDS, "beams", "tokens", "distributions", "masks", "positions"]
    said = capsys.readouterr().out.splitlines()
    assert said == [str(out / f"{name}.png") for name in names]
    assert sorted(out.iterdir()) == sorted(map(out.joinpath, (f"{name}.png" for name in names)))


def test_with_a_target_and_a_log_curves_are_drawn_too(run, tmp_path, monkeypatch):
    (run / "log.csv").write_text("epoch,loss,learning_rate,val_loss,val_bleu\n1,3,0.1,2,7\n")
    seen = []
    monkeypatch.setattr(
        "training.report.picture.write_picture", lambda path, *_: seen.append(path.name)
    )
    words = [str(run), "a lake", "--target", "the trees", "--out", str(tmp_path)]
    assert picture.main([*words, "--format", "svg"]) == 0
    (run / "log.csv").unlink()
    assert "curves.svg" in seen and len(seen) == 13


def test_titles_and_axes_are_in_the_chosen_language(run, tmp_path, monkeypatch):
    (run / "log.csv").write_text("epoch,loss,learning_rate,val_loss,val_bleu\n1,3,0.1,2,7\n")
    written = {"zh": set(), "en": set()}
    for language, words in written.items():

        def keep(path, figure, *_, words=words):
            words.add(figure.get_suptitle())
            for ax in figure.axes:
                words |= {ax.get_xlabel(), ax.get_ylabel()}
            pyplot().close(figure)  # of more than 20 open ones, Matplotlib warns

        monkeypatch.setattr("training.report.picture.write_picture", keep)
        options = ["--target", "the trees", "--out", str(tmp_path), "--language", language]
        assert picture.main([str(run), "a lake", *options]) == 0
    (run / "log.csv").unlink()
    chinese, english = ({word for word in words if word} for words in written.values())
    assert min(len(chinese), len(english)) > 15
    assert all(re.search("[\u4e00-\u9fff]", word) for word in chinese)
    assert all(word.isascii() for word in english)


def test_without_a_text_only_the_architecture_is_drawn(run, tmp_path, capsys):
    assert picture.main([str(run), "--out", str(tmp_path / "out"), "--format", "svg"]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["architecture.svg"]
    with pytest.raises(SystemExit) as end:
        picture.main([str(run), "--target", "a", "--out", str(tmp_path / "other")])
    assert end.value.code == 2 and "--target needs a TEXT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a " * 70], "text must have 1 to 16 pieces, got"),
        ([""], "text must have 1 to 16 pieces, got 0: ''"),
        (["a", "--target", "the " * 13], "target must have 1 to 12 pieces, got 13"),
    ],
)
def test_texts_of_invalid_length_give_one_line_error(run, tmp_path, capsys, words, message):
    assert picture.main([str(run), *words, "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not (tmp_path / "out").exists()


def test_unsuitable_run_or_output_path_gives_one_line_error(run, tmp_path, capsys):
    tokenizer = Tokenizer.train(["a"], vocabulary_size=300)
    size = tokenizer.source_vocabulary_size
    tfformer.save(tmp_path / "old", Recurrent(RecurrentConfig.preset("test", size)), tokenizer)
    (tmp_path / "file").write_text("")
    old, none, new, file = (tmp_path / name for name in ("old", "none", "new", "file"))
    for directory, out, named in ((old, new, old), (none, new, none), (run, file, file)):
        words = [str(directory), "a", "--target", "a", "--out", str(out)]
        assert picture.main(words) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and str(named) in said
