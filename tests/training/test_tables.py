"""Training with a word table as vocabulary."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from killing_recipe import RECIPE
from words import make_model

import tfformer
from tfformer import RunError, Tokenizer, run
from tfformer.files import read_arrays
from tfformer.text.learn_vocabulary import learn_table
from tfformer.text.vocabularies import PieceTable
from training.data.noise import Noise
from training.data.reader import Pair
from training.preparation.initialisation import Runs
from training.preparation.prepare import prepare, read_tokenizer
from training.shortlist import _same_pieces
from training.tasks import TASKS

PAIRS = [Pair(f"noun {'verb ' * (n % 5)}zz", f"{'A ' * (n % 3)}noun") for n in range(30)]
TEXTS = [pair.source for pair in PAIRS]
TASK = TASKS[RECIPE.task]


@pytest.fixture(scope="module")
def model():
    return Tokenizer.train(TEXTS, vocabulary_size=280).source


@pytest.fixture(scope="module")
def table():
    return PieceTable(["noun", "verb", "C"])


@pytest.fixture(scope="module")
def prepared(model, table, tmp_path_factory):
    """What a training that begins with such a run has prepared: (run, folder)."""
    folder = tmp_path_factory.mktemp("prepared")
    tokenizer = Tokenizer(model, table)
    tfformer.save(folder / "run", make_model(tokenizer), tokenizer)
    changes = {"pairs": lambda split, data: iter(PAIRS), "new_pieces": 1, "both_ways": 0}
    recipe = dataclasses.replace(RECIPE, **changes)
    prepare(folder / "prepared", recipe, None, lambda line: None, Runs(init=folder / "run"))
    return folder / "run", folder / "prepared"


def test_source_and_target_vocabularies_are_written_to_own_files(prepared, table):
    _, folder = prepared
    names = {path.name for path in folder.iterdir()}
    assert {"source.model", "target.pieces"} <= names
    assert not {"source.pieces", "target.model"} & names
    assert read_tokenizer(folder).pieces("target") == [*table.pieces, "A"]


def test_new_word_begins_with_the_embedding_of_unk(prepared, table):
    directory, folder = prepared
    before, after = run.model_weights(run.load_model(directory)), read_arrays(folder / "init.npz")
    name = "target_embedding/embeddings"
    np.testing.assert_array_equal(after[name][: table.size], before[name])
    np.testing.assert_array_equal(after[name][table.size :], before[name][[1]])


def test_missing_or_damaged_vocabulary_file_is_refused(model, table, tmp_path):
    (tmp_path / "source.model").write_bytes(model.content)
    with pytest.raises(RunError, match="is damaged: there is no file of the target's vocabulary"):
        read_tokenizer(tmp_path)
    (tmp_path / "target.pieces").write_bytes(b"two words\n")
    with pytest.raises(RunError, match="is damaged: target.pieces: piece 1 must"):
        read_tokenizer(tmp_path)
    (tmp_path / "target.pieces").write_bytes(table.content)
    assert read_tokenizer(tmp_path).sha256 == Tokenizer(model, table).sha256


def test_only_the_sentencepiece_vocabulary_is_sampled(model, table):
    tokenizer = Tokenizer(model, table)
    noise, texts = Noise(tokenizer, subword_sampling=0.3), tf.constant(TEXTS)
    alone, seed = Noise(Tokenizer(model), subword_sampling=0.3), tf.constant([3, 5], tf.int64)
    drawn = noise.encode_source(texts, 99, seed, 0).to_list()
    assert drawn == alone.encode_source(texts, 99, seed, 0).to_list()
    assert drawn != tokenizer.encode_source(texts).to_list()
    usual = tokenizer.encode_target(texts).to_list()
    assert noise.encode_target(texts, 99, seed, 0).to_list() == usual


def test_subword_sampling_is_refused_for_word_tables(table):
    with pytest.raises(ValueError, match="subword_sampling must be 0 .* got 0.3"):
        Noise(Tokenizer(table), subword_sampling=0.3)


def test_shortlist_maps_equal_words_of_two_tables(table):
    source = learn_table([TEXTS], 9)
    same, special = _same_pieces(Tokenizer(source, table))
    assert source.pieces[4:] == ["verb", "noun", "zz"]
    assert same.tolist() == [0, 0, 0, 0, 5, 4, 0] and special.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "files, words",
    [
        (["source.model"], "SentencePiece bpe, 9 pieces for both sides"),
        (["source.model", "target.model"], "SentencePiece bpe, 9 and 7 pieces"),
        (["source.model", "target.pieces"], "SentencePiece bpe and a table, 9 and 7 pieces"),
        (["source.pieces", "target.pieces"], "a table, 9 and 7 pieces"),
    ],
)
def test_card_describes_the_vocabulary(files, words):
    fields = {"source_vocabulary_size": 9, "target_vocabulary_size": 7, "d_model": 8}
    fields |= {"num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    config = {"model": fields, "sha256": dict.fromkeys(files, "")}
    assert dict(TASK.sizes(config, {"vocabulary_kind": "bpe"}))["vocabulary"] == words
