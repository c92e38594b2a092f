"""Links between words: read line by line, converted to pieces of any segmentation, refused if
wrong."""

import numpy as np
import pytest
import tensorflow as tf

from tfformer import Tokenizer
from tfformer.text.vocabularies import PieceTable
from training.data.alignment import with_links
from training.data.batches import Batches
from training.data.corpus import write_corpus
from training.data.links import Links
from training.data.noise import Noise
from training.data.reader import CorpusError, CorpusReport, Pair
from training.tasks import TASKS

PAIRS = [
    Pair("one two  three", "drei eins", links="0-1 2-0"),
    Pair("four", "vier"),
    Pair("five six", "sechs fünf sieben", links="0-1 1-0 1-2"),
]


@pytest.fixture(scope="module")
def tokenizer():
    sides = [[getattr(pair, side) for pair in PAIRS] for side in ("source", "target")]
    return Tokenizer.train(*sides, vocabulary_size=283, kind="bpe")


@pytest.fixture(scope="module")
def corpus(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "train"
    return write_corpus(folder, PAIRS, tokenizer, 47, CorpusReport(kept=3))


def test_each_pair_gets_the_links_of_its_line(tmp_path):
    path = tmp_path / "links"
    path.write_text("0-1 \t 2-0\r\n\n0-1 1-0 1-2\n")
    assert list(with_links([pair._replace(links="") for pair in PAIRS], path)) == PAIRS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-1\n", "must have a line for each pair, got 1 lines and 2 or more pairs"),
        ("\n\n\n\n", "must have a line for each pair, got 4 or more lines and 3 pairs"),
        ("\n \n\n", "must have links, such as 0-0 1-2, got none"),
        ("\n0:0\n\n", "line 2: a link must be two numbers such as 0-1, got '0:0'"),
        ("\n0-0 0-\n\n", "line 2: a link must be two numbers such as 0-1, got '0-'"),
        ("\n\n2-0\n", "line 3: 2-0 links word 2 of the source, counted from 0, which has 2"),
        ("0-2\n\n\n", "line 1: 0-2 links word 2 of the target, counted from 0, which has 2"),
    ],
)
def test_invalid_links_file_raises_corpus_error(tmp_path, text, message):
    path = tmp_path / "links"
    path.write_text(text)
    with pytest.raises(CorpusError, match=f"^{path}.*{message}"):
        list(with_links(iter(PAIRS), path))


def test_corpus_stores_links(corpus):
    assert corpus.has_links
    assert corpus.links([2, 1, 0]) == [PAIRS[n].links.encode() for n in (2, 1, 0)]
    sources, targets = corpus.texts([2])
    assert (sources, targets) == ([b"five six"], ["sechs fünf sieben".encode()])


def test_corpus_of_an_older_run_has_no_links(corpus, tmp_path):
    np.save(tmp_path / "index.npy", corpus.index[:, :5])
    (tmp_path / "text.bin").write_bytes(corpus.text.tobytes())
    older = type(corpus)(tmp_path)
    assert not older.has_links
    assert older.texts([0, 2]) == corpus.texts([0, 2]) and older.tokens([1]) == corpus.tokens([1])


@pytest.mark.parametrize("sampling", [0.0, 0.5])
def test_batch_numbers_the_word_of_each_token(tokenizer, corpus, sampling):
    noise = Noise(tokenizer, subword_sampling=sampling, word_dropout=0.3)
    batches = Batches(
        TASKS["translation"], corpus, tokenizer, 1024, packed=True, noise=noise, linked=True
    )
    seen = 0
    for inputs, _ in batches.dataset():
        names = ("links", "source_ids", "source_words", "target_ids", "target_words")
        rows = zip(*(inputs[name].numpy() for name in names), strict=True)
        for links, source_ids, source_words, target_ids, target_words in rows:
            if not source_ids.any():
                assert not (links.any() or source_words.any() or target_words.any())
                continue
            seen += 1
            eos = np.flatnonzero(source_ids)[-1]
            assert source_words[eos] == 0 and not source_words[eos:].any()
            # Words have consecutive numbers, from one on.
            words = source_words[:eos]
            assert words[0] == 1 and set(np.diff(words)) <= {0, 1}
            text = next(
                pair
                for pair in PAIRS
                if len(pair.source.split()) == words.max()
                and len(pair.target.split()) == target_words.max()
            )
            numbers = [int(n) + 1 for n in text.links.replace("-", " ").split()]
            assert links[links > 0].tolist() == numbers
            # Labels are the target ids moved by one.
            size = np.count_nonzero(target_ids)
            assert target_words[size - 1] == 0 and (target_words[: size - 1] > 0).all()
    assert seen == len(PAIRS)


def test_word_numbers_match_words_encoded_one_by_one(tokenizer):
    """By hand: the pieces of each word, one word after the other."""
    texts = tf.constant(["five six", "four"])
    source = tokenizer.encode_source(texts)
    expected = []
    for text in ("five six", "four"):
        row = []
        for number, word in enumerate(text.split(), start=1):
            row += [number] * (len(tokenizer.encode_source(tf.constant([word]))[0]) - 1)
        expected.append([*row, 0])
    found = Links(tokenizer).inputs(source, source, tf.constant(["", ""]), lambda ids, *_: ids)
    assert found["source_words"].to_list() == found["target_words"].to_list() == expected


def test_each_piece_of_a_table_is_a_word():
    table = PieceTable(["a", "b@@"])
    ids = Tokenizer(table, table).encode_source(tf.constant(["a b@@ c a", ""]))
    found = Links(Tokenizer(table, table)).inputs(ids, ids, tf.constant(["", ""]), lambda x, *_: x)
    assert found["target_words"].to_list() == [[1, 2, 3, 4, 0], [0]]


def test_pairs_lose_links_when_the_tokenizer_splits_words_differently(tokenizer, tmp_path):
    """U+00B4 becomes a space and an accent, U+200B a space, so other words would be linked."""
    pairs = [
        Pair("one two", "eins zwei", links="0-0 1-1"),
        Pair("don\u00b4t go", "geh nicht", links="1-0"),
        Pair("one", "ei\u200bns zwei", links="0-1"),
        Pair("a\u200bb c", "drei"),
    ]
    report = CorpusReport(kept=4)
    corpus = write_corpus(tmp_path / "train", pairs, tokenizer, 47, report)
    assert corpus.links([0, 1, 2, 3]) == [b"0-0 1-1", b"", b"", b""]
    assert report.kept == 4 and report.unlinked == 2
    assert str(report).endswith("; 2 pairs with other words for the tokenizer than between blanks, "
                                "without their links")  # fmt: skip


def test_the_copies_of_a_batch_have_the_same_links(tokenizer, corpus):
    batches = Batches(TASKS["translation"], corpus, tokenizer, 1024, linked=True)
    batches.passes = 2
    for inputs, _ in batches.dataset():
        for name in ("links", "source_words", "target_words"):
            first, second = np.split(inputs[name].numpy(), 2)
            np.testing.assert_array_equal(first, second)


def test_both_ways_is_refused_with_links(tokenizer, corpus):
    with pytest.raises(ValueError, match="both_ways must be 0 with alignments, got 2"):
        Batches(TASKS["translation"], corpus, tokenizer, 64, both_ways=2, linked=True)
