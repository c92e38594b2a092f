"""A study trains and scores its rows, resumes where it was stopped, and makes the table."""

import functools
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from paths import ROOT, SUPPORT

from benchmarks.learning import picture, study
from tfformer.files import read_json
from tfformer.run import read_config
from training import evaluate
from training.command_line.options import read_recipe
from training.train import parser as train_parser

RECIPE = SUPPORT / "killing_recipe.py"
FOLDER = ROOT / "benchmarks" / "learning"
STUDY = """
train = ["{here}/recipe.py", "--epochs", "1", "--r-drop", "0", "--both-ways", "0"]
evaluate = ["--recipe", "{here}/recipe.py", "--split", "val"]
[figures]
perplexity = ["perplexity", "{:.0f}"]
[rows]
"as it is" = []
"a half" = ["--init-encoder", "{other}"]
[before]
other = ["{here}/recipe.py", "--epochs", "1", "--r-drop", "0", "--both-ways", "0", "--d-ff", "31"]
"""


def written(folder, text=STUDY):
    path = folder / "study.toml"
    path.write_text(text)
    (folder / "recipe.py").write_bytes(RECIPE.read_bytes())
    return path


STUDIES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.toml"))


@pytest.mark.parametrize("name", STUDIES)
def test_every_option_of_a_study_is_accepted_by_training(name, tmp_path):
    for split, side in itertools.product(
        ("train", "val", "one-of-2", "one-of-8", "one-of-32"), ("en", "de")
    ):
        (tmp_path / f"{split}.{side}").write_text("a text\n")
    found = study.Study(FOLDER / name, tmp_path / "out", tmp_path)
    first, trainings = found.trainings(list(found.rows), [3, 5])
    assert len(trainings) == 2 * len(found.rows)
    # One seed of all rows, then the other.
    assert [one.words[-1] for one in trainings] == ["3"] * len(found.rows) + ["5"] * len(found.rows)
    assert len({one.run for one in (*first, *trainings)}) == len(first) + len(trainings)
    for training in (*first, *trainings):
        options = train_parser().parse_args([*training.words, "--run", str(training.run)])
        assert read_recipe(options)  # no option breaks a rule
        for begins in (options.init, options.init_encoder, options.init_decoder):
            assert begins is None or begins in [one.run for one in first]


def test_studies_with_different_losses_do_not_plot_the_loss(tmp_path):
    pictures = {}
    for name in STUDIES:
        found = study.Study(FOLDER / name, tmp_path, tmp_path)
        words = {word for row in found.rows.values() for word in row}
        if words & {"--reward", "--objective", "--smoothing", "--scheduled-sampling"}:
            pictures[name] = found.picture[0]
    assert pictures and "loss" not in pictures.values()


class Finished(SimpleNamespace):
    """A training that took two epochs, and reached a BLEU of 99 in the epoch `at`."""

    def history(self):
        return [{"epoch": 1.0, "val_bleu": 60.0}, {"epoch": 2.0, "val_bleu": 98.0}]

    def figures(self):
        return {"epochs_to_99": self.at}


def test_unreached_epochs_are_labelled_not_reached_in_the_picture(monkeypatch):
    drawn = []
    monkeypatch.setattr(picture, "write_picture", lambda path, figure: drawn.append(figure))
    found = [("soon", 1.0), ("soon", 2.0), ("once", 2.0), ("once", 3), ("never", 3), ("never", 3)]
    trainings = [Finished(row=row, at=at) for row, at in found]
    picture.draw("study.png", trainings, "val_bleu", "epochs_to_99", "epochs")
    _, dots = drawn[0].axes
    [soon], [also_soon], [once] = (line.get_xydata().tolist() for line in dots.lines)
    epochs_and_rows = [(x, round(y)) for x, y in (soon, also_soon, once)]
    assert epochs_and_rows == [(1, 0), (2, 0), (2, 1)]
    assert soon[1] != also_soon[1]  # seeds of one row are drawn apart
    said = {text.get_text(): round(text.get_position()[1]) for text in dots.texts}
    assert said == {"1 of 2 not reached": 1, "not reached": 2}
    bottom, top = dots.get_ylim()
    assert bottom > 2 and top < 0  # the row without a dot is in the picture


@pytest.mark.parametrize(
    ("p_from", "expected"),
    [
        ("first", {"wrong": "small", "same": 1.0}),
        ("previous", {"wrong": "small"}),  # the row before "same" is not finished
    ],
)
def test_p_values_compare_with_the_first_or_previous_row(tmp_path, monkeypatch, p_from, expected):
    references = [f"the little house {n} stands by the lake" for n in range(40)]
    pairs = [SimpleNamespace(target=text) for text in references], None
    monkeypatch.setattr(evaluate, "read_test_set", lambda *_: pairs)
    wrong = [" ".join(reversed(text.split())) for text in references]
    found = {"right": references, "wrong": wrong, "missing": None, "same": references}
    trainings = []
    for row, texts in found.items():
        path = tmp_path / row
        path.write_text("".join(f"{text}\n" for text in texts or ()))
        done = functools.partial(bool, texts)
        trainings.append(SimpleNamespace(run=row, row=row, figures=done, translations=path))
    asked = SimpleNamespace(p_from=p_from, rows=found, evaluate=["--recipe", "dates"])
    values = study.p_values(asked, trainings)
    assert values.pop("wrong") < 0.01 and expected.pop("wrong") == "small"
    assert values == expected
    asked.p_from = None
    assert study.p_values(asked, trainings) is None


def test_placeholders_are_filled_in_and_changed_options_are_refused(tmp_path):
    path = written(tmp_path)
    found = study.Study(path, tmp_path / "out")
    (other,), (plain, half) = found.trainings(["as it is", "a half"], [7])
    assert half.words[0] == f"{tmp_path}/recipe.py"
    assert half.words[half.words.index("--init-encoder") + 1] == str(other.run)
    assert "--seed" not in other.words and plain.words[-2:] == ["--seed", "7"]
    (tmp_path / "out").mkdir()
    half.begin()
    half.begin()
    changed = study.Study(written(tmp_path, STUDY.replace('1", "--r', '2", "--r')), found.out)
    with pytest.raises(ValueError, match="was begun with other options: choose another --out"):
        changed.trainings(["a half"], [7])[1][0].begin()


def test_lowest_perplexity_is_the_minimum_over_the_validated_epochs(tmp_path, monkeypatch):
    epochs = [{"val_perplexity": 9.0}, {}, {"val_perplexity": 7.0}, {"val_perplexity": 8.0}]
    history = [{"epoch": n, "seconds": 60.0} | one for n, one in enumerate(epochs, 1)]
    monkeypatch.setattr(study.Training, "history", lambda self: history)
    found = study.Study(written(tmp_path), tmp_path)
    [plain] = found.trainings(["as it is"], [7])[1]
    plain.scores.write_text('{"perplexity": 8.5}')
    figures = plain.figures()
    assert (figures["lowest_perplexity"], figures["last_val_perplexity"]) == (7.0, 8.0)


@pytest.mark.nightly
def test_a_study_end_to_end(tmp_path, capfd):
    words = [str(written(tmp_path)), "--out", str(tmp_path / "out"), "--seeds", "3", "5"]
    words += ["--picture", str(tmp_path / "study.png")]
    assert study.main(words) == 0
    said = capfd.readouterr().out
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")
    rows = [line.split(" | ")[:2] for line in said.splitlines()[-2:]]
    assert rows == [["| as it is", "2"], ["| a half", "2"]]
    # The second row begins with the other run, which was trained once.
    runs = {path.name: read_config(path)["model"] for path in (tmp_path / "out").glob("*/")}
    assert set(runs) == {"other", "as-it-is-3", "as-it-is-5", "a-half-3", "a-half-5"}
    assert runs["a-half-3"]["d_ff"] == 31 != runs["as-it-is-3"]["d_ff"]
    facts = read_json(tmp_path / "out" / "a-half-3" / "prepared" / "corpus.json")
    assert facts["encoder"]["weights"] == read_config(tmp_path / "out" / "other")["weights"]
    # Finished trainings are not repeated, missing ones are made.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("last.npz")}
    Path(tmp_path, "out", "a-half-5.scores.json").unlink()
    assert study.main(words) == 0
    assert capfd.readouterr().out == said
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("last.npz")}
