"""A corpus on disk returns its texts and their lengths."""

import random

import numpy as np
import pytest
import tensorflow as tf

from tfformer import Tokenizer
from training.data.corpus import TOKENS, Corpus, write_corpus
from training.data.reader import CorpusError, CorpusReport, Pair

MAX_TOKENS = 17


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["ein Haus am See", "東京 の 家"] * 10, vocabulary_size=300, kind="char")


def make_pairs(count, longest=23):
    chosen = random.Random(count)
    alphabet = "einHausmS 東京の家🦀é"

    def text():
        return "x" + "".join(chosen.choices(alphabet, k=chosen.randint(0, longest)))

    return [Pair(text(), text()) for _ in range(count)]


def token_counts(tokenizer, pairs):
    sides = [[pair.source for pair in pairs], [pair.target for pair in pairs]]
    encodes = (tokenizer.encode_source, tokenizer.encode_target)
    rows = [
        f(tf.constant(texts)).row_lengths().numpy() for f, texts in zip(encodes, sides, strict=True)
    ]
    return np.stack(rows, axis=1)


def test_a_corpus_gives_back_its_texts_and_token_counts(tmp_path, tokenizer):
    # More pairs than are tokenised at once.
    pairs, report = make_pairs(1301), CorpusReport(kept=1301)
    counts = token_counts(tokenizer, pairs)
    short = (counts <= MAX_TOKENS).all(axis=1)
    assert 100 < short.sum() < 1201
    written = write_corpus(tmp_path / "new", iter(pairs), tokenizer, MAX_TOKENS, report)
    for corpus in (written, Corpus(tmp_path / "new")):
        assert len(corpus) == short.sum()
        kept = [pair for pair, fits in zip(pairs, short, strict=True) if fits]
        sources, targets = corpus.texts(slice(None))
        assert [text.decode() for text in sources] == [pair.source for pair in kept]
        assert [text.decode() for text in targets] == [pair.target for pair in kept]
        np.testing.assert_array_equal(corpus.index[:, TOKENS], counts[short])
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["index.npy", "text.bin"]


def test_dropped_pairs_are_counted(tmp_path, tokenizer):
    pairs, report = make_pairs(53), CorpusReport(kept=53, blank=2)
    long = int((token_counts(tokenizer, pairs) > MAX_TOKENS).any(axis=1).sum())
    corpus = write_corpus(tmp_path / "new", pairs, tokenizer, MAX_TOKENS, report)
    assert (report.kept, report.too_many_tokens, report.blank) == (53 - long, long, 2)
    assert len(corpus) == report.kept
    assert 0 < long < 53


def test_pairs_are_read_by_number_in_any_order(tmp_path, tokenizer):
    pairs = make_pairs(31)
    corpus = write_corpus(tmp_path / "new", pairs, tokenizer, 100, CorpusReport(kept=31))
    numbers = [7, 0, 30, 7]
    sources, targets = corpus.texts(numbers)
    assert [text.decode() for text in sources] == [pairs[n].source for n in numbers]
    assert [text.decode() for text in targets] == [pairs[n].target for n in numbers]
    assert corpus.tokens(numbers) == token_counts(tokenizer, [pairs[n] for n in numbers]).sum()


def test_empty_corpus_is_refused(tmp_path, tokenizer):
    with pytest.raises(CorpusError, match="no pair"):
        write_corpus(tmp_path / "empty", [], tokenizer, MAX_TOKENS, CorpusReport())
    report = CorpusReport(kept=1)
    with pytest.raises(CorpusError, match="1 of too many tokens"):
        write_corpus(tmp_path / "long", [Pair("x" * 99, "y")], tokenizer, MAX_TOKENS, report)


def test_existing_folder_is_not_overwritten(tmp_path, tokenizer):
    write_corpus(tmp_path / "new", make_pairs(3), tokenizer, 100, CorpusReport(kept=3))
    before = (tmp_path / "new" / "text.bin").read_bytes()
    with pytest.raises(FileExistsError):
        write_corpus(tmp_path / "new", make_pairs(5), tokenizer, 100, CorpusReport(kept=5))
    assert (tmp_path / "new" / "text.bin").read_bytes() == before
