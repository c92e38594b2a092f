"""Several labels for a text, weights of rare labels, and the confusion matrix."""

import json

import labelled
import numpy as np
import pytest
import tensorflow as tf
from stopped import assert_goes_on

from tfformer import run as runs
from training import evaluate, train
from training.tasks import TASKS
from training.tasks.classification import Classification

pytestmark = pytest.mark.usefixtures("loaded_once")
TASK = TASKS["multi-label-classifier"]


def several(count, seed):
    """Two joined texts have the labels of both; "the" alone has none."""
    pairs = [*labelled.classified(2 * count, seed)]
    for first, second in zip(pairs[:count], pairs[count:], strict=True):
        yield f"{first[0]} {second[0]}", f"{first[1]} , {second[1]}"
    yield "the", ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with texts and labels, and a run that was trained on them."""
    folder = tmp_path_factory.mktemp("multi-label")
    for name, count in (("train", 149), ("val", 37)):
        labelled.write(folder, name, several(count, count))
    assert train.main(words(folder, folder / "run")) == 0
    return folder


def words(folder, run, *options):
    more = ["--multi-label", "--piece-length", "11", "--piece-overlap", "3", "--pieces", "lstm"]
    return labelled.command(folder, "classifier", run, *more, *options)


@pytest.mark.slow
def test_published_f1_equals_counts_by_hand(folder):
    config = runs.read_config(folder / "run")
    assert config["model"]["multi_label"] and config["model"]["num_labels"] == 3
    service = runs.load_service(folder / "run")
    found = service.answer((folder / "val.txt").read_text().splitlines())
    given = (folder / "val.labels").read_text().splitlines()
    found, given = ([{*filter(None, map(str.strip, line.split(",")))} for line in side]
                    for side in (found, given))  # fmt: skip
    f1 = []
    for label in ("animal", "colour", "fruit salad"):
        both = sum(label in a and label in b for a, b in zip(found, given, strict=True))
        f1.append(2 * both / sum(label in one for one in (*found, *given)))
    assert np.mean(f1) == pytest.approx(config["training"]["val_macro_f1"])


@pytest.mark.slow
def test_evaluation_writes_its_scores_and_a_picture(folder, tmp_path, capsys):
    picture, out = tmp_path / "confused.png", tmp_path / "found.json"
    test = ["--source", str(folder / "val.txt"), "--labels", str(folder / "val.labels")]
    command = [str(folder / "run"), *test, "--output", str(out), "--picture", str(picture)]
    assert evaluate.main(command) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(out.read_text())
    config = runs.read_config(folder / "run")
    assert found["macro_f1"] == pytest.approx(config["training"]["val_macro_f1"])
    assert found["pairs"] == 38 and 0 <= found["exact_match"] <= 100


@pytest.mark.slow
def test_training_resumes_bit_identically(folder, tmp_path):
    """With an LSTM over pieces."""
    run = tmp_path / "run"
    assert_goes_on(words(folder, run), run, folder / "run")


@pytest.mark.slow
def test_resume_and_init_refuse_a_missing_multi_label_option(folder, tmp_path, capsys):
    assert train.main(words(folder, folder / "run", "--resume")) == 0
    other = labelled.command(folder, "classifier", folder / "run", "--resume")
    assert train.main(other) == 2
    assert "whose task is multi-label-classifier" in capsys.readouterr().err
    more = labelled.command(folder, "classifier", tmp_path / "run", "--init", str(folder / "run"))
    sizes = ("--preset", "--num-layers", "--vocabulary-size", "--vocabulary-kind")
    more = [w for n, w in enumerate(more) if w not in sizes and more[n - 1] not in sizes]
    assert train.main(more) == 1
    assert "multi_label must be False for this task, got True" in capsys.readouterr().err
    assert train.main([*more, "--multi-label", "--epochs", "1"]) == 0
    assert runs.read_config(tmp_path / "run")["model"]["pieces"] == "lstm"


@pytest.mark.slow
def test_batch_labels_are_1_for_no_and_2_for_yes(folder):
    tokenizer = runs.load_tokenizer(folder / "run")
    reading = TASK.reading(tokenizer, 7)
    targets = reading.encode_target(tf.constant(["animal\tfruit salad", ""]))
    inputs, labels = reading.example(
        tf.ragged.constant([[5, 3], [3]], tf.int32),
        targets,
        lambda ids, columns=4: ids.to_tensor(0, shape=[3, columns]),
    )
    assert labels.numpy().tolist() == [[2, 1, 2], [1, 1, 1], [0, 0, 0]]
    assert inputs["ids"].shape == (3, 4)
    assert TASK.labels_of(" b ,a,, b\t c", {}) == ["a", "b", "b c"]


@pytest.mark.slow
def test_threshold_decides_which_labels_are_returned(folder):
    texts = ["the cat", "red pear"]
    high, low = (runs.load_service(folder / "run", threshold=t) for t in (0.999999, 1e-6))
    assert high.answer(texts) == ["", ""]
    assert low.answer(texts) == ["animal, colour, fruit salad"] * 2
    with pytest.raises(ValueError, match=r"threshold must be in \(0, 1\), got 1"):
        runs.load_service(folder / "run", threshold=1)


def test_balanced_class_weights_are_inverse_to_label_counts():
    class Recipe:
        smoothing, class_weights = 0.0, "balanced"

    class Corpus:
        counts = np.array([6, 2, 1])

    loss = Classification().loss(Recipe, Corpus)
    assert loss.weights == pytest.approx([9 / 18, 9 / 6, 9 / 3])


@pytest.mark.slow
def test_class_weights_are_trained_with_or_refused(folder, tmp_path, capsys):
    labelled.write(tmp_path, "train", labelled.classified(67, 5))
    labelled.write(tmp_path, "val", labelled.classified(11, 7))
    command = labelled.command(tmp_path, "classifier", tmp_path / "run", "--epochs", "1")
    assert train.main([*command, "--class-weights", "balanced"]) == 0
    corpus = TASKS["classifier"].corpus(tmp_path / "run" / "prepared" / "train")
    lines = (tmp_path / "train.labels").read_text().splitlines()
    assert corpus.counts.tolist() == [lines.count(label) for label in sorted({*lines})]
    for given, said in (
        (words(folder, tmp_path / "x", "--class-weights", "balanced"), "('none',), got 'balanced'"),
        ([*command, "--class-weights", "rare"], "must be one of ('none', 'balanced'), got 'rare'"),
        (words(folder, tmp_path / "x", "--piece-length", "3"), "piece_overlap must be less than"),
    ):
        given[given.index("--run") + 1] = str(tmp_path / "x")
        assert train.main(given) == 2
        assert said in capsys.readouterr().err
