"""A classifier is trained, killed, resumed, scored, exported, verified and served."""

import csv
import io
import json
import sys

import labelled
import numpy as np
import pytest
import tensorflow as tf
from stopped import assert_goes_on

from tfformer import run as runs
from training import evaluate, train, translate
from training.metrics import labels as measures
from training.preparation.prepare import prepare
from training.tasks import TASKS

pytestmark = pytest.mark.usefixtures("loaded_once")
TASK = TASKS["classifier"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with texts and labels for training, validation and test."""
    folder = tmp_path_factory.mktemp("classifier")
    for name, count in (("train", 149), ("val", 37), ("test", 41)):
        labelled.write(folder, name, labelled.classified(count, count))
    return folder


@pytest.fixture(scope="module")
def folder(corpus):
    """The same folder with a trained run."""
    assert train.main(labelled.command(corpus, "classifier", corpus / "run")) == 0
    return corpus


def plain_scores(service, texts, labels):
    """Macro F1 and accuracy by their definitions."""
    found = service.answer(texts)
    scores = []
    for label in sorted({*found, *labels}):
        pairs = list(zip(found, labels, strict=True))
        both = sum(a == b == label for a, b in pairs)
        precision = both / max(1, found.count(label))
        recall = both / max(1, labels.count(label))
        scores.append(2 * precision * recall / max(precision + recall, 1e-9))
    return np.mean(scores), np.mean([a == b for a, b in zip(found, labels, strict=True)])


def lines(path):
    return path.read_text().splitlines()


@pytest.mark.slow
def test_the_best_macro_f1_is_published(folder):
    with (folder / "run" / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    config = runs.read_config(folder / "run")
    assert config["family"] == "classifier" and config["search"] == {"max_source_length": 48}
    assert config["model"]["num_labels"] == 3
    published = config["training"]["val_macro_f1"]
    assert published >= max(float(row["val_macro_f1"]) for row in rows) - 1e-9
    service = runs.load_service(folder / "run")
    f1, _ = plain_scores(service, lines(folder / "val.txt"), lines(folder / "val.labels"))
    assert f1 == pytest.approx(published)
    assert lines(folder / "run" / "target.labels") == ["animal", "colour", "fruit salad"]
    card = (folder / "run" / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "149 texts kept" in card


@pytest.mark.slow
def test_tsv_gives_the_same_corpus_as_two_files(folder, tmp_path):
    words = ["--family", "classifier", "--run", str(tmp_path / "run"), *labelled.SIZES]
    words += ["--source", str(folder / "train.tsv"), "--val-source", str(folder / "val.tsv")]
    recipe = train.read_recipe(train.parser().parse_args(words))
    prepare(tmp_path / "prepared", recipe, None, print)
    for name in ("train/text.bin", "train/index.npy", "val/text.bin", "target.labels"):
        expected = (folder / "run" / "prepared" / name).read_bytes()
        assert (tmp_path / "prepared" / name).read_bytes() == expected, name


@pytest.mark.slow
def test_training_resumes_bit_identically(folder, tmp_path):
    run = tmp_path / "run"
    assert_goes_on(labelled.command(folder, "classifier", run), run, folder / "run")


@pytest.mark.slow
def test_evaluation_scores_equal_plain_counts(folder, tmp_path, capsys):
    test = [str(folder / "test.txt"), "--labels", str(folder / "test.labels")]
    out = tmp_path / "found.json"
    answers = tmp_path / "answers.txt"
    words = [str(folder / "run"), "--output", str(out), "--translations", str(answers)]
    assert evaluate.main([*words, "--source", *test]) == 0
    found = json.loads(out.read_text())
    service = runs.load_service(folder / "run")
    texts, labels = lines(folder / "test.txt"), lines(folder / "test.labels")
    assert (found["macro_f1"], found["accuracy"]) == pytest.approx(
        plain_scores(service, texts, labels)
    )
    assert sum(row["count"] for row in found["labels"].values()) == 41
    assert lines(answers) == service.answer(texts)
    shown = capsys.readouterr().out
    assert f"{found['macro_f1']:.4f}" in shown and "fruit salad" in shown
    assert evaluate.main([*words, "--source", str(folder / "test.tsv")]) == 0
    assert json.loads(out.read_text())["macro_f1"] == found["macro_f1"]
    assert "macro F1" in (folder / "run" / "README.md").read_text()


@pytest.mark.slow
def test_translate_command_writes_one_label_per_line(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a cat\n\nwe saw red\n")))
    assert translate.main([str(folder / "run")]) == 0
    said = capsys.readouterr().out
    assert {*said.splitlines()} <= {"animal", "colour", "fruit salad"}
    assert said.count("\n") == 3


@pytest.mark.slow
def test_texts_that_are_too_long_are_cut_as_the_server_does(folder):
    tokenizer = runs.load_tokenizer(folder / "run")
    reading = TASK.reading(tokenizer, 7)
    text = "the cat and the dog"
    [ids] = reading.encode_source(tf.constant([text])).to_list()
    whole = tokenizer.encode_source([text])[0].numpy().tolist()
    assert ids == [*whole[:6], 3]
    service = TASK.served(runs.load_model(folder / "run"), tokenizer, {"max_source_length": 7})
    assert service.source_ids(tf.constant([text]))[0].numpy().tolist() == [ids]
    inputs, labels = reading.example(
        tf.ragged.constant([ids, [5, 3]], tf.int32),
        tf.ragged.constant([[6, 3], [4, 3]], tf.int32),
        lambda ids, columns=8: ids.to_tensor(0, shape=[3, columns]),
    )
    assert inputs["ids"].numpy().tolist() == [[*ids, 0], [5, 3, *[0] * 6], [0] * 8]
    assert labels.numpy().tolist() == [[3], [1], [0]]


def test_macro_f1_by_hand():
    """Three labels: F1 of 2/3, of 1/2, and a label that does not occur and is not predicted."""
    confused = measures.confusion([0, 0, 0, 1, 1], [0, 0, 1, 1, 0], 3)
    assert confused.tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]
    counts = measures.label_counts(confused)
    assert measures.macro_f1(*counts) == pytest.approx((2 / 3 + 1 / 2) / 2)
    found = measures.by_label(["a", "b", "c"], *counts)
    assert found["b"] == {"f1": 0.5, "precision": 0.5, "recall": 0.5, "count": 2}
    assert "c" not in found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--family", "classifier", "--text", "FILE"],
         "--family classifier needs --source and --labels, got --text"),
        (["--family", "classifier", "--source", "FILE", "--target", "FILE"],
         "--family classifier needs --source and --labels, got --target"),
        (["--source", "FILE", "--labels", "FILE"],
         "--family transformer needs --source and --target, got --labels"),
        (["--family", "classifier", "--labels", "FILE"], "--labels needs --source"),
        (["--family", "classifier", "--source", "FILE", "--labels", "FILE", "--beam-width", "5"],
         "beam_width must be 4 for the family classifier, got 5"),
        (["--family", "classifier", "--source", "FILE", "--labels", "FILE",
          "--coverage-penalty", "0.1"],
         "search must be empty for the family classifier, which has no search"),
        (["--family", "classifier", "--source", "FILE", "--labels", "EMPTY"],
         "could be held out for validation (1 in 20): give --val-source and --val-labels"),
        (["--family", "classifier", "--source", "FILE", "--labels", "FILE", "--pooling", "max"],
         "pooling must be one of ('mean', 'bos'), got 'max'"),
    ],
)  # fmt: skip
def test_incompatible_options_are_refused(corpus, tmp_path, capsys, given, message):
    (tmp_path / "empty").write_text("\n" * 149)
    names = {"FILE": str(corpus / "train.txt"), "EMPTY": str(tmp_path / "empty")}
    given = [names.get(word, word) for word in given]
    assert train.main([*given, "--run", str(tmp_path / "run")]) in (1, 2)
    said = capsys.readouterr().err
    assert message in said and said.count("error:") == 1 and "Traceback" not in said


def test_labels_that_only_validation_has_are_counted(corpus, tmp_path):
    (tmp_path / "val.labels").write_text("animal\n" * 30 + "mineral\n" * 7)
    words = labelled.command(corpus, "classifier", tmp_path / "run", "--epochs", "1")
    words[words.index("--val-labels") + 1] = str(tmp_path / "val.labels")
    said = []
    recipe = train.read_recipe(train.parser().parse_args(words))
    prepare(tmp_path / "prepared", recipe, None, said.append)
    assert any("val: 30 texts kept; dropped 7 of an unknown label" in line for line in said)


@pytest.mark.slow
def test_commands_for_other_families_are_refused(folder, tmp_path, capsys):
    run, text = str(folder / "run"), str(folder / "val.txt")
    for main, arguments, said in (
        (evaluate.main, [run, "--source", text, "--target", text], "'encoder-decoder' or"),
        (evaluate.main, [run, "--text", text], "'language-model', got 'classifier'"),
        (
            evaluate.main,
            [run, "--source", text, "--labels", text, "--greedy"],
            "--greedy needs a translator",
        ),
        (translate.main, [run, "--picture", str(tmp_path / "x.png")], "'encoder-decoder', got"),
        (translate.main, [run, "--beam-width", "3"], "beam_width is no option of the family"),
    ):
        assert main(arguments) == 1
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_export_is_verified_and_answers_files_like_the_service(folder, tmp_path):
    """The served results are those of the service here."""
    from export import saved_model, translate_files

    exported, out = tmp_path / "topics", tmp_path / "out"
    assert saved_model.main([str(folder / "run"), str(exported)]) == 0
    assert translate_files.main([str(exported), str(out), str(folder / "test.txt")]) == 0
    service = runs.load_service(folder / "run")
    assert lines(out / "test.txt") == service.answer(lines(folder / "test.txt"))
