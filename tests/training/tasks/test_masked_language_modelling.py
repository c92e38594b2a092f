"""Masked words: whole ones, shares of 80/10/10; a training is killed, resumed, scored, exported."""

import json
import math
import random

import labelled
import numpy as np
import pytest
import tensorflow as tf
from stopped import assert_goes_on

from tfformer import (
    MaskedLanguageModel,
    MaskedLanguageModelConfig,
    SmoothedCrossEntropy,
    Tokenizer,
)
from tfformer import run as runs
from tfformer.config import BOS, EOS
from training import evaluate, train
from training.data.masking import Masking
from training.data.packed_text import JoinedBatches
from training.tasks import TASKS

pytestmark = pytest.mark.usefixtures("loaded_once")
TASK = TASKS["masked-language-model"]


def texts(count, seed):
    """Each word is followed by the next one of a circle."""
    words = "alpha beta gamma delta epsilon zeta eta theta".split()
    chosen = random.Random(seed)
    starts = (chosen.randrange(len(words)) for _ in range(count))
    return [" ".join((words * 2)[n : n + chosen.randint(3, 7)]) for n in starts]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with texts for training and validation."""
    folder = tmp_path_factory.mktemp("masked-language-model")
    for name, count in (("train.txt", 151), ("val.txt", 37)):
        (folder / name).write_text("".join(f"{text}\n" for text in texts(count, count)))
    return folder


@pytest.fixture(scope="module")
def folder(corpus):
    """The same folder with a trained run."""
    assert train.main(words(corpus, corpus / "run")) == 0
    return corpus


def words(folder, run, *options):
    files = ["--text", str(folder / "train.txt"), "--val-text", str(folder / "val.txt")]
    family = ["--family", "masked-language-model", "--run", str(run)]
    return [*family, *files, *labelled.SIZES, *options]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["ein Haus am See", "der große Garten"] * 9, vocabulary_size=290)


def rows(tokenizer, count):
    """Two texts in each row, and padding."""
    ids = [tokenizer.encode_source(["der Garten am Haus"])[0].numpy().tolist()] * 2
    joined = [n for one in ids for n in one]
    numbers = [1] * len(ids[0]) + [2] * len(ids[1])
    joined, numbers = ([*side, 0, 0] for side in (joined, numbers))
    return tf.constant([joined] * count), tf.constant([numbers] * count)


def test_pieces_are_grouped_into_whole_words(tokenizer):
    ids, numbers = rows(tokenizer, 1)
    found = Masking(tokenizer).words(ids, numbers)[0].numpy()
    pieces = [tokenizer.source.pieces[n] for n in ids[0].numpy()]
    expected, word = [], -1
    for n, piece in enumerate(pieces):
        if n == 0 or piece.startswith("▁") or piece in ("</s>", "<pad>"):
            word += 1
        elif pieces[n - 1] == "</s>":
            word += 1
        expected.append(word)
    assert found.tolist() == expected
    assert len(set(expected)) < len(expected)  # some word has several pieces
    # A text that continues from the row before begins inside a word, which then counts as a word.
    later = Masking(tokenizer).words(ids[:, 1:], numbers[:, 1:])[0].numpy()
    assert later[0] == 0


def test_whole_words_are_hidden_in_shares_of_80_10_10(tokenizer):
    masking = Masking(tokenizer)
    ids, numbers = (tf.tile(one, [1, 12]) for one in rows(tokenizer, 300))
    hidden, labels = masking.masked(ids, numbers, [5, 7])
    groups = masking.words(ids, numbers).numpy()
    ids, hidden, labels = ids.numpy(), hidden.numpy(), labels.numpy()
    assert not labels[ids <= EOS].any() and (hidden[labels == 0] == ids[labels == 0]).all()
    assert (labels[labels > 0] == ids[labels > 0]).all()
    chosen = masked = same = other = total = 0
    for word in np.unique(groups[0]):
        own = groups[0] == word
        if (ids[0, own] <= EOS).all():
            continue
        total += len(ids)
        of_word = labels[:, own] > 0
        assert (of_word.all(axis=1) | ~of_word.any(axis=1)).all()  # whole or not at all
        rows_of = np.flatnonzero(of_word.all(axis=1))
        chosen += len(rows_of)
        all_masked = (hidden[rows_of][:, own] == BOS).all(axis=1)
        assert (all_masked == (hidden[rows_of][:, own] == BOS).any(axis=1)).all()
        unchanged = (hidden[rows_of][:, own] == ids[rows_of][:, own]).all(axis=1)
        masked, same = masked + all_masked.sum(), same + unchanged.sum()
    other = chosen - masked - same

    def near(count, of, share):
        return abs(count / of - share) < 4 * math.sqrt(share * (1 - share) / of) + 0.003

    assert near(chosen, total, 0.15)
    assert near(masked, chosen, 0.8) and near(other, chosen, 0.1) and near(same, chosen, 0.1)
    assert (hidden > EOS)[(labels > 0) & (hidden != BOS)].all()
    again = masking.masked(tf.constant(ids), numbers, [5, 7])
    np.testing.assert_array_equal(again[0], hidden)
    assert (masking.masked(tf.constant(ids), numbers, [5, 8])[0].numpy() != hidden).any()


def test_masked_positions_alone_give_the_same_loss_and_gradients(tokenizer):
    """No state is multiplied by the vocabulary unnecessarily."""
    size = len(tokenizer.source.pieces)
    config = MaskedLanguageModelConfig.preset("test", size, dropout=0.0)
    model, found = MaskedLanguageModel(config), []
    ids, numbers = rows(tokenizer, 5)
    for packed in (False, True):
        inputs, labels = Masking(tokenizer, packed).joined(ids, ids, numbers, [3, 4])
        with tf.GradientTape() as tape:
            logits = model(inputs)
            loss = SmoothedCrossEntropy()(tf.reshape(labels, [-1]), logits)
        gradients = tape.gradient(loss, model.trainable_variables)
        found.append([loss, *(tf.convert_to_tensor(g) for g in gradients if g is not None)])
        count = int(tf.math.count_nonzero(labels))
        assert logits.shape == ((count + -count % 16 if packed else tf.size(ids)), size)
    for alone, everywhere in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(alone, everywhere, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_validation_masks_are_fixed_and_epoch_inputs_differ(folder):
    tokenizer = runs.load_tokenizer(folder / "run")
    corpus = TASK.corpus(folder / "run" / "prepared" / "val")

    def masked(shuffle, epoch):
        """{the ids of a text: its ids with masks}, whatever the order of the texts."""
        found = {}
        batches = TASK.batches(corpus, tokenizer, 256, 48, shuffle=shuffle)
        for inputs, labels in batches.dataset(epoch).as_numpy_iterator():
            original = np.where(labels > 0, labels, inputs["ids"])
            for text in np.unique(inputs["texts"]):
                for row in np.flatnonzero((inputs["texts"] == text).any(axis=1)):
                    own = inputs["texts"][row] == text
                    found[tuple(original[row, own])] = tuple(inputs["ids"][row, own])
        return found

    assert masked(False, 0) == masked(False, 0)
    first, second = masked(True, 0), masked(True, 1)
    # Texts that continue in another row are cut elsewhere in another order.
    common = first.keys() & second.keys()
    assert len(common) > 3 and any(first[text] != second[text] for text in common)


@pytest.mark.slow
def test_published_perplexity_equals_recomputed_one(folder):
    """At masked positions only, each text of a row by itself."""
    model, tokenizer = runs.load(folder / "run")
    corpus = TASK.corpus(folder / "run" / "prepared" / "val")
    total = count = 0
    for inputs, labels in TASK.batches(corpus, tokenizer, 256, 48, shuffle=False).dataset():
        for ids, numbers, of_row in zip(inputs["ids"], inputs["texts"], labels, strict=True):
            for number in set(numbers.numpy().tolist()) - {0}:
                own = numbers == number
                logits = model(ids[own][None], training=False)[0]
                log_probs, real = tf.nn.log_softmax(logits).numpy(), of_row[own].numpy()
                places = np.flatnonzero(real)
                total -= log_probs[places, real[places]].sum()
                count += len(places)
    config = runs.read_config(folder / "run")
    assert config["family"] == "masked-language-model"
    assert math.exp(total / count) == pytest.approx(config["training"]["val_perplexity"], rel=1e-4)


@pytest.mark.slow
def test_training_resumes_bit_identically(folder, tmp_path):
    run = tmp_path / "run"
    assert_goes_on(words(folder, run), run, folder / "run", JoinedBatches)


@pytest.mark.slow
def test_evaluating_does_not_depend_on_the_batches(folder, tmp_path, capsys):
    found = []
    for size in ("64", "7"):
        words = ["--text", str(folder / "val.txt"), "--output", str(tmp_path / size)]
        assert evaluate.main([str(folder / "run"), *words, "--batch-size", size]) == 0
        found.append(json.loads((tmp_path / size).read_text()))
        assert f"{found[-1]['perplexity']:.3f}" in capsys.readouterr().out
    for name in ("perplexity", "accuracy", "hidden", "pairs"):
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--source", "FILE", "--target", "FILE"], "masked-language-model needs --text, got"),
        (["--text", "FILE", "--word-dropout", "0.1"], "word_dropout must be 0.0 for the family"),
        (["--text", "FILE", "--beam-width", "5"], "beam_width must be 4 for the family"),
        (["--text", "FILE", "--pooling", "bos"], "fields must be among"),
    ],
)
def test_incompatible_options_are_refused(corpus, tmp_path, capsys, given, message):
    given = [str(corpus / "train.txt") if word == "FILE" else word for word in given]
    family = ["--family", "masked-language-model", "--run", str(tmp_path / "run")]
    assert train.main([*family, *given]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_it_is_exported_and_verified(folder, tmp_path):
    from export import saved_model

    assert saved_model.main([str(folder / "run"), str(tmp_path / "gaps")]) == 0
