"""A run directory with word tables is written completely and checked like any other."""

import json
import shutil

import pytest
import tensorflow as tf
from words import FEW_LAYERS, make_model, sentences

import tfformer
from tfformer import RunError, Tokenizer, run
from tfformer.text.vocabularies import PieceTable

LABELS = PieceTable(["noun", "verb", "größer"])


@pytest.fixture(scope="module")
def model_bytes():
    return Tokenizer.train(sentences(1, 200), vocabulary_size=330).source_model


@pytest.fixture(scope="module")
def tokenizer(model_bytes):
    return Tokenizer(model_bytes, LABELS)


@pytest.fixture(scope="module")
def original(tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "original"
    run.save(directory, make_model(tokenizer, **FEW_LAYERS), tokenizer)
    return directory


@pytest.fixture
def directory(original, tmp_path):
    """A copy for the test to damage."""
    return shutil.copytree(original, tmp_path / "run")


def names(directory):
    return {path.name for path in directory.iterdir() if not path.name.startswith("weights-")}


def assert_refused(directory, *words):
    with pytest.raises(RunError) as error:
        tfformer.load(directory)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words)


def test_word_table_is_stored_as_a_file_of_lines(original):
    assert names(original) == {"config.json", "source.model", "target.pieces"}
    assert (original / "target.pieces").read_text(encoding="utf-8") == "noun\nverb\ngrößer\n"


def test_load_returns_the_saved_tokenizers(original, tokenizer):
    model, loaded = tfformer.load(original)
    assert loaded.sha256 == tokenizer.sha256 and loaded.target.is_same(LABELS)
    assert model.config.target_vocabulary_size == 7
    text = tf.constant(["verb noun x"])
    assert loaded.encode_target(text).to_list() == [[5, 4, 1, 3]]
    translator = run.load_translator(original, max_target_length=5)
    assert set(" ".join(translator.translate(["ein Haus"])).split()) <= set(LABELS.pieces)


def test_shared_table_is_stored_once(tmp_path):
    shared = Tokenizer(LABELS)
    run.save(tmp_path / "run", make_model(shared, **FEW_LAYERS), shared)
    assert names(tmp_path / "run") == {"config.json", "source.pieces"}
    assert run.load_tokenizer(tmp_path / "run").is_shared


def test_run_refuses_another_table_and_stays_unchanged(directory, tokenizer, model_bytes):
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    run.save(directory, make_model(tokenizer, **FEW_LAYERS), tokenizer)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    for other, name in (
        (Tokenizer(model_bytes, PieceTable(["noun", "größer", "verb"])), "target.pieces"),
        (Tokenizer(model_bytes), "target.pieces"),
        (Tokenizer(LABELS, model_bytes), "source.model"),
    ):
        with pytest.raises(RunError, match=f"another {name}"):
            run.save(directory, make_model(other, **FEW_LAYERS), other)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def rewrite(directory, change):
    config = json.loads((directory / "config.json").read_text())
    change(config["sha256"])
    (directory / "config.json").write_text(json.dumps(config))


def test_config_without_a_source_tokenizer_is_refused(directory):
    rewrite(directory, lambda names: names.pop("source.model"))
    assert_refused(directory, "has no tokenizer", "source must have one file, source.model or")


def test_two_files_for_the_source_are_refused(directory):
    shutil.copy(directory / "target.pieces", directory / "source.pieces")
    rewrite(directory, lambda names: names.update({"source.pieces": names["target.pieces"]}))
    assert_refused(directory, "source must have one file", "source.pieces")


def test_table_named_as_a_sentencepiece_model_is_refused(directory):
    def swap(names):
        names["target.model"] = names.pop("target.pieces")

    (directory / "target.pieces").rename(directory / "target.model")
    rewrite(directory, swap)
    assert_refused(directory, "target.model must be a SentencePiece model")
