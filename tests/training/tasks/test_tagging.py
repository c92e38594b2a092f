"""A tagger is trained, killed, resumed, scored, exported and verified."""

import json

import labelled
import numpy as np
import pytest
import tensorflow as tf
from stopped import assert_goes_on

from tfformer import run as runs
from training import evaluate, train
from training.data.corpus import Corpus
from training.preparation.prepare import prepare
from training.tasks import TASKS
from training.tasks.tagging import FIRST

pytestmark = pytest.mark.usefixtures("loaded_once")
TASK = TASKS["tagger"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with words and labels, and a run that was trained on them."""
    folder = tmp_path_factory.mktemp("tagger")
    for name, count in (("train", 149), ("val", 37)):
        labelled.write(folder, name, labelled.tagged(count, count))
    assert train.main(labelled.command(folder, "tagger", folder / "run")) == 0
    return folder


def lines(path):
    return path.read_text().splitlines()


@pytest.mark.slow
def test_published_f1_equals_counts_by_hand(folder, tmp_path):
    service, config = runs.load_service(folder / "run"), runs.read_config(folder / "run")
    assert config["family"] == "tagger" and config["search"] == {"max_source_length": 48}
    found = " ".join(service.answer(lines(folder / "val.txt"))).split()
    given = " ".join(lines(folder / "val.labels")).split()
    assert len(found) == len(given)
    f1 = []
    for label in sorted({*found, *given}):
        both = sum(a == b == label for a, b in zip(found, given, strict=True))
        f1.append(2 * both / (found.count(label) + given.count(label)))
    assert np.mean(f1) == pytest.approx(config["training"]["val_macro_f1"])
    out = tmp_path / "found.json"
    test = ["--source", str(folder / "val.tsv"), "--output", str(out)]
    picture = tmp_path / "confused.png"
    assert evaluate.main([str(folder / "run"), *test, "--picture", str(picture)]) == 0
    scores = json.loads(out.read_text())
    assert scores["macro_f1"] == pytest.approx(np.mean(f1)) and picture.exists()
    hits = sum(a == b for a, b in zip(found, given, strict=True))
    assert scores["accuracy"] == pytest.approx(hits / len(given))


@pytest.mark.slow
def test_conll_file_gives_the_same_corpus_and_scores(folder, tmp_path):
    """Prepared and scored like the two files with the same words."""
    for name in ("train", "val"):
        rows = zip(lines(folder / f"{name}.txt"), lines(folder / f"{name}.labels"), strict=True)
        with open(tmp_path / f"{name}.conll", "w") as file:
            file.write("-DOCSTART- -X- O\n\n")
            for text, labels in rows:
                words = [*filter(None, text.split(" "))]
                for word, label in zip(words, labels.split(), strict=True):
                    file.write(f"{word} _ {label}\n")
                file.write("\n")
    command = ["--family", "tagger", "--run", str(tmp_path / "run"), *labelled.SIZES]
    command += ["--source", str(tmp_path / "train.conll")]
    command += ["--val-source", str(tmp_path / "val.conll")]
    parsed = train.parser().parse_args(command)
    prepare(tmp_path / "prepared", train.read_recipe(parsed), None, print)
    for split in ("train", "val"):
        found, given = (
            Corpus(prepared / split).texts(slice(None))
            for prepared in (tmp_path / "prepared", folder / "run" / "prepared")
        )
        assert [text.split() for text in found[0]] == [text.split() for text in given[0]]
        assert found[1] == given[1]
    scores = []
    for name in (tmp_path / "val.conll", folder / "val.tsv"):
        out = tmp_path / "found.json"
        test = ["--source", str(name), "--output", str(out)]
        assert evaluate.main([str(folder / "run"), *test]) == 0
        scores.append(json.loads(out.read_text()))
    assert scores[0]["labels"] == scores[1]["labels"]


@pytest.mark.slow
def test_batch_labels_are_at_the_first_piece_of_each_word(folder):
    tokenizer = runs.load_tokenizer(folder / "run")
    reading = TASK.reading(tokenizer, 48)
    texts = tf.constant(["the  cat", "\u200b red"])
    source = reading.encode_source(texts)
    words = [tokenizer.encode_source([word])[0].numpy().tolist()[:-1] or [1]
             for word in ("the", "cat", "\u200b", "red")]  # fmt: skip
    assert [n % FIRST for n in source[0].numpy()] == [*words[0], *words[1], 3]
    target = reading.encode_target(tf.constant(["O\tB-an", "O\tB-co"]))

    def padded(ids, columns=16):
        return ids.to_tensor(0, shape=[3, columns])

    inputs, labels = reading.example(source, target, padded)
    names = tokenizer.target.labels
    number = {name: n + 1 for n, name in enumerate(names)}
    expected = np.zeros((3, 16), int)
    expected[0, 0], expected[0, len(words[0])] = number["O"], number["B-an"]
    expected[1, 0], expected[1, 1] = number["O"], number["B-co"]
    np.testing.assert_array_equal(labels, expected)
    assert inputs["ids"][1].numpy().tolist()[:2] == [1, words[3][0]]
    assert inputs["ids"].numpy().max() < tokenizer.source_vocabulary_size


@pytest.mark.slow
def test_training_resumes_bit_identically(folder, tmp_path):
    run = tmp_path / "run"
    assert_goes_on(labelled.command(folder, "tagger", run), run, folder / "run")


def test_lines_with_wrong_number_of_labels_are_dropped_and_counted(tmp_path, capsys):
    labelled.write(tmp_path, "train", [*labelled.tagged(60, 3), ("a b c", "O O"), ("a", "")])
    labelled.write(tmp_path, "val", labelled.tagged(7, 4))
    words, said = labelled.command(tmp_path, "tagger", tmp_path / "run"), []
    recipe = train.read_recipe(train.parser().parse_args(words))
    prepare(tmp_path / "prepared", recipe, None, said.append)
    dropped = "dropped 2 blank, 1 whose sides do not belong together"
    assert any(dropped in line for line in said)
    assert train.main([*words, "--class-weights", "balanced"]) == 2
    assert "class_weights must be one of ('none',), got 'balanced'" in capsys.readouterr().err


@pytest.mark.slow
def test_it_is_exported_and_verified(folder, tmp_path):
    from export import saved_model

    assert saved_model.main([str(folder / "run"), str(tmp_path / "tags")]) == 0
