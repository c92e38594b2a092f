"""Rows of joined texts: each token once an epoch, full rows, a repeatable order, any shards."""

import random

import numpy as np
import pytest

from tfformer import Tokenizer
from tfformer.config import BOS, EOS
from training.data.packed_text import JoinedBatches, JoinedCorpus
from training.data.reader import CorpusReport, Pair
from training.tasks import TASKS

TASK = TASKS["language-model"]
TEXTS, TOKENS, T = 101, 97, 13


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["ein Haus am See", "der Garten"] * 10, vocabulary_size=300, kind="char")


@pytest.fixture(scope="module")
def texts():
    chosen = random.Random(5)
    return ["".join(chosen.choices("einHausmS", k=chosen.randint(1, 40))) for _ in range(TEXTS)]


@pytest.fixture(scope="module")
def corpus(texts, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "train"
    pairs = [Pair(text, "") for text in texts]
    return JoinedCorpus.write(folder, pairs, tokenizer, T, CorpusReport(kept=TEXTS))


@pytest.fixture(scope="module")
def batches(corpus, tokenizer):
    return TASK.batches(corpus, tokenizer, TOKENS, T, seed=3)


def elements(dataset):
    """(ids, texts, labels) of each batch, in NumPy."""
    return [
        (inputs["ids"], inputs["texts"], labels) for inputs, labels in dataset.as_numpy_iterator()
    ]


def flat(found):
    """The real tokens of batches, row by row: ids, texts, labels, [n] each."""
    parts = [np.concatenate([one[n].reshape(-1) for one in found]) for n in range(3)]
    return [part[parts[1] > 0] for part in parts]


def test_corpus_stores_the_ids_of_each_text(corpus, texts, tokenizer):
    assert len(corpus) == TEXTS
    for number, text in enumerate(texts):
        expected = tokenizer.encode_source([text])[0].numpy()
        np.testing.assert_array_equal(corpus.text_ids(number), expected)
    size = sum(len(text.encode()) for text in texts)
    assert corpus.bytes_per_token == pytest.approx(size / corpus.tokens)


def test_an_epoch_has_each_token_once_with_shifted_inputs(batches, corpus):
    found = elements(batches.dataset())
    assert len(found) == len(batches) == -(-corpus.tokens // (TOKENS // T * T))
    for ids, texts, labels in found:
        assert ids.shape == texts.shape == labels.shape == batches.shape() == (TOKENS // T, T)
    ids, texts, labels = flat(found)
    assert len(ids) == corpus.tokens
    # Only the end has padding.
    assert all((texts > 0).all() for _, texts, _ in found[:-1])
    written = sorted(corpus.text_ids(n).tolist() for n in range(TEXTS))
    ends = np.flatnonzero(labels == EOS)
    pieces = np.split(labels, ends[:-1] + 1)
    assert sorted(piece.tolist() for piece in pieces) == written
    # The input is the previous label, and bos at the beginning of a text.
    first = np.concatenate([[True], labels[:-1] == EOS])
    np.testing.assert_array_equal(ids == BOS, first)
    np.testing.assert_array_equal(ids[1:][~first[1:]], labels[:-1][~first[1:]])
    # Each text has its own number.
    assert len(set(texts.tolist())) == TEXTS
    np.testing.assert_array_equal(np.diff(texts) != 0, first[1:])


def test_skip_yields_the_rest_of_the_epoch(batches):
    """The numbers of the texts then differ, but which tokens share a text does not."""
    whole = elements(batches.dataset(1))
    for skip in (0, 1, len(whole) - 1):
        found = elements(batches.dataset(1, skip))
        assert len(found) == len(whole) - skip
        for (ids, texts, labels), (all_ids, all_texts, all_labels) in zip(
            found, whole[skip:], strict=True
        ):
            np.testing.assert_array_equal(ids, all_ids)
            np.testing.assert_array_equal(labels, all_labels)
            np.testing.assert_array_equal(
                texts[:, 1:] == texts[:, :-1], all_texts[:, 1:] == all_texts[:, :-1]
            )


def test_epochs_are_shuffled_and_validation_keeps_corpus_order(batches, corpus, tokenizer):
    first, second = (flat(elements(batches.dataset(epoch)))[2] for epoch in (0, 1))
    assert sorted(first) == sorted(second) and first.tolist() != second.tolist()
    plain = TASK.batches(corpus, tokenizer, TOKENS, T, shuffle=False)
    np.testing.assert_array_equal(flat(elements(plain.dataset(7)))[2], corpus.ids)


@pytest.mark.parametrize("count, parts", [(1, 3), (2, 1), (3, 2)])
def test_shards_take_every_nth_row_and_padding(batches, corpus, tokenizer, count, parts):
    """Filled up with padding rows, so that each shard has the same number, a multiple of the
    parts."""
    sharded = TASK.batches(corpus, tokenizer, TOKENS, T, seed=3, parts=parts)
    shards = [elements(sharded.dataset(shards=(n,), count=count)) for n in range(count)]
    rows = batches.shape()[0]
    for number, whole in enumerate(elements(batches.dataset())):
        for n in range(count):
            for mine, all_rows in zip(shards[n][number], whole, strict=True):
                own = all_rows[n::count]
                assert mine.shape[0] % parts == 0 and mine.shape == sharded.shape(0, count)
                np.testing.assert_array_equal(mine[: len(own)], own)
                assert not mine[len(own) :].any()
    assert rows * T == TOKENS // T * T


def test_token_counts_match_the_batches(batches):
    expected = [int((texts > 0).sum()) for _, texts, _ in elements(batches.dataset())]
    assert list(batches.tokens(0)) == expected
    assert list(batches.tokens(0, skip=2)) == expected[2:]


def test_long_text_continues_over_several_rows(tokenizer, tmp_path):
    """Two texts, of which one fills several batches."""
    texts = [Pair("einHaus" * 40, ""), Pair("See", "")]
    corpus = JoinedCorpus.write(tmp_path / "c", texts, tokenizer, T, CorpusReport(kept=2))
    batches = JoinedBatches(TASK, corpus, 2 * T, shuffle=False, row_length=T)
    ids, numbers, labels = flat(elements(batches.dataset()))
    np.testing.assert_array_equal(labels, corpus.ids)
    assert np.count_nonzero(ids == BOS) == 2 and len(set(numbers.tolist())) == 2
    later = flat(elements(batches.dataset(0, 3)))
    np.testing.assert_array_equal(later[2], labels[6 * T :])
