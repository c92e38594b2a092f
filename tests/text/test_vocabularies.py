"""A SentencePiece model and a word table follow the same rules as a side of text."""

import collections
import random

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tfformer.text.learn_vocabulary import extend, learn_model, learn_table, made_of
from tfformer.text.tokenizer import CLASSES, FILES
from tfformer.text.vocabularies import (
    LabelTable,
    PieceTable,
    SentencePieceModel,
    Side,
    clean,
)

# Only a space is a blank: the others here are parts of a word.
LABELS = [
    "noun",
    "verb",
    "B-PER",
    "größer",
    "東京",
    "a\u00a0b",
    "x\u3000y",
    "z\u2028",
    "</w>",
    "🦀",
]
TEXTS = [
    *("noun verb", "verb  noun ", " B-PER größer 東京", "", "   ", "unseen noun", "nounverb"),
    *(
        "a\u00a0b x\u3000y",
        "z\u2028\tverb\r\nnoun",
        "nul\0noun",
        "</w> <unk> </s> <pad>",
        "NOUN 🦀",
    ),
]


class ModelOracle:
    """A SentencePiece model by the library itself."""

    def __init__(self, side):
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=side.content)
        self.size = self.processor.vocab_size()
        self.byte_ids = [n for n in range(self.size) if self.processor.is_byte(n)]

    def encode(self, text):
        return [*self.processor.encode(text), 3]

    def decode(self, ids):
        return self.processor.decode(ids)

    def name(self, n):
        return self.processor.id_to_piece(n)


class TableOracle:
    """A word table in plain Python."""

    byte_ids = []

    def __init__(self, side):
        self.names = ["<pad>", "<unk>", "<s>", "</s>", *side.content.decode().split("\n")[:-1]]
        self.size = len(self.names)

    def encode(self, text):
        known = {name: n for n, name in enumerate(self.names) if n > 3}
        return [*(known.get(word, 1) for word in text.split(" ") if word), 3]

    def decode(self, ids):
        return " ".join(self.names[n] for n in ids)

    def name(self, n):
        return self.names[n]


ORACLES = {SentencePieceModel: ModelOracle, PieceTable: TableOracle}


@pytest.fixture(scope="module")
def model():
    return learn_model([[text for text in TEXTS if text.strip()] * 9], 310)


@pytest.fixture(scope="module")
def table():
    return PieceTable(LABELS)


@pytest.fixture(scope="module", params=["model", "table"])
def side(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def oracle(side):
    return ORACLES[type(side)](side)


# ---------------------------------------------------------------- both


def test_every_class_has_its_own_file_suffix():
    assert all(kind.suffix == suffix and issubclass(kind, Side) for suffix, kind in CLASSES.items())
    assert {SentencePieceModel, PieceTable, LabelTable} <= set(CLASSES.values())
    assert set(FILES) == {f"{side}{suffix}" for side in ("source", "target") for suffix in CLASSES}
    with pytest.raises(TypeError, match="abstract"):
        Side(b"", "none")


def test_ids_equal_the_oracle(side, oracle):
    ids = side.encode(tf.constant(TEXTS))
    assert ids.dtype == tf.int32 and ids.row_splits.dtype == tf.int64
    cleaned = [text.decode() for text in clean(tf.constant(TEXTS)).numpy()]
    assert ids.to_list() == [oracle.encode(text) for text in cleaned]
    assert side.encode(tf.constant([], tf.string)).to_list() == []


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_equal_scores_are_resolved_as_by_the_installed_sentencepiece(kind):
    """The server's version and the installed one: "00" and "0", for example, or "0" and "00"."""
    side = learn_model([[f"{'0' * (n % 9)}1{'!' * (n % 7)} f{'f' * (n % 5)}e" for n in range(400)]],
                       300, kind)  # fmt: skip
    texts = [f"{b}{c * n}" for b in ("", "e", "1", "!e") for c in "0!f" for n in range(1, 120)]
    processor = sentencepiece.SentencePieceProcessor(model_proto=side.content)
    assert [row[:-1] for row in side.encode(tf.constant(texts)).to_list()] == processor.encode(
        texts
    )
    assert side.has_exact_scores


def test_decoded_texts_equal_the_oracle(side, oracle):
    rng = random.Random(3)
    rows = [rng.choices(range(4, side.size), k=k) for k in (1, 5, 0, 17)]
    rows = [[n for n in row if n not in oracle.byte_ids] for row in rows]
    found = side.decode(tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1)).numpy()
    assert [text.decode() for text in found] == [oracle.decode(row) for row in rows]
    assert side.decode(side.encode(tf.constant([], tf.string))).shape == (0,)


def test_pieces_equal_the_oracle(side, oracle):
    names = [oracle.name(n) for n in range(oracle.size)]
    assert (
        side.pieces == names
        and side.size == len(names)
        and names[:4] == [*("<pad>", "<unk>", "<s>", "</s>")]
    )
    assert side.byte_ids == oracle.byte_ids
    ids = np.arange(side.size, dtype="int32")[None, ::-1]
    found = side.names(tf.constant(ids)).numpy()
    assert [[name.decode() for name in row] for row in found] == [names[::-1]]


def test_vocabulary_is_restored_from_its_content(side):
    again = type(side).from_content(side.content)
    assert again.is_same(side) and again.pieces == side.pieces
    assert not side.filled_up(side.size + 1).is_same(side)


def test_sample_text_depends_on_its_seed_and_has_no_special_pieces(side):
    texts = [side.sample_text(7, seed) for seed in range(9)]
    assert texts == [side.sample_text(7, seed) for seed in range(9)] and len(set(texts)) > 5
    special = {*range(3), *side.byte_ids}
    assert not special & set(side.encode(tf.constant(texts)).flat_values.numpy().tolist())
    assert side.sample_text(0, seed=1) == "a"


def test_filled_up_vocabulary_keeps_the_same_ids(side):
    larger = side.filled_up(side.size + 37)
    assert larger.size == side.size + 37 and len(set(larger.pieces)) == larger.size
    assert larger.pieces[: side.size] == side.pieces
    texts = tf.constant(TEXTS)
    assert larger.encode(texts).to_list() == side.encode(texts).to_list()


def test_pipeline_equals_eager_results(side):
    texts = tf.constant(TEXTS)
    mapped = tf.data.Dataset.from_tensor_slices(texts).batch(5).map(side.encode)
    assert [row for batch in mapped for row in batch.to_list()] == side.encode(texts).to_list()


# ---------------------------------------------------------------- a table


def test_only_a_sentencepiece_model_samples_segmentations(model, table):
    assert table.sampler(0.3) is None
    usual = model.encode(tf.constant(["größer"])).to_list()
    # So large a sample differs from the usual segmentation at least once.
    drawn = model.sampler(0.01)([b"gr\xc3\xb6\xc3\x9fer"] * 199, 99, 3)
    assert any(ids != usual[0] for ids in drawn)


def test_setting_a_seed_does_not_change_the_ids_of_a_table(table):
    before = table.encode(tf.constant(TEXTS)).to_list()
    tf.random.set_seed(3)
    assert table.encode(tf.constant(TEXTS)).to_list() == before


@pytest.mark.parametrize(
    "pieces, rule",
    [
        ([], "at least one piece"),
        (["a", ""], "piece 2 must not be empty, got ''"),
        (["a b"], "piece 1 must be UTF-8 without a blank or a control character, got 'a b'"),
        (["a", "b\n"], "piece 2 must be UTF-8 without .*, got 'b.n'"),
        (["a\t"], "without a blank"),
        (["a\x85"], "without a blank"),
        (["\ud800"], "piece 1 must be UTF-8"),
        (["a", "b", "a"], "piece 3 must be there once, got 'a'"),
        (["</s>"], "another name than the special ones, <pad> <unk> <s> </s>, got '</s>'"),
        (["a", b"b"], "piece 2 must be a string, got b'b'"),
    ],
)
def test_invalid_piece_gives_one_line_error(pieces, rule):
    with pytest.raises(ValueError, match=f"^labels.*{rule}") as error:
        PieceTable(pieces, "labels")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content, rule",
    [
        (b"", "at least one piece"),
        (b"\n", "at least one piece"),
        (b"a\n\nb\n", "piece 2 must not be empty"),
        (b"a\r\nb\r\n", "piece 1 must be UTF-8 without a blank or a control character"),
        (b"a\n\xff\n", "pieces in UTF-8, one a line, got 4 bytes"),
    ],
)
def test_invalid_file_of_pieces_is_refused(content, rule):
    with pytest.raises(ValueError, match=f"^the file.*{rule}"):
        PieceTable.from_content(content, "the file")


def test_last_line_of_a_file_may_lack_its_newline():
    assert PieceTable.from_content(b"a\nb").content == b"a\nb\n"


# ---------------------------------------------------------------- learning a table


def test_learned_table_has_the_most_frequent_words():
    rng = random.Random(5)
    texts = [" ".join(rng.choices("aa b ß C <unk> d 東 e".split(), k=5)) for _ in range(1500)]
    texts += ["tie\ttie2", "tie2 tie"]
    counts = collections.Counter(word for text in texts for word in text.split())
    del counts["<unk>"]
    expected = sorted(counts, key=lambda word: (-counts[word], word))
    assert learn_table([texts[:700], iter(texts[700:])], 99).pieces[4:] == expected
    assert expected[-2:] == ["tie", "tie2"]
    assert learn_table([texts], 7).pieces[4:] == expected[:3]


@pytest.mark.parametrize("size", [4, 7.0, "7", None])
def test_invalid_vocabulary_size_is_refused(size):
    with pytest.raises(ValueError, match=f"vocabulary_size must be .* over 4.* got {size!r}"):
        learn_table([["a"]], size)


def test_texts_without_words_are_refused():
    with pytest.raises(ValueError, match="they have no word"):
        learn_table([["", " ", "<unk>"]], 9)


def test_an_extended_table_keeps_its_ids(table):
    longer = extend(table, [["new noun new", "other"], ["more new other"]], 2)
    assert longer.pieces == [*table.pieces, "new", "other"]
    # Words that the table lacked were unk.
    assert made_of(longer, table) == [[1], [1]]
    assert extend(table, [["new"]], 0).is_same(table)
    assert table.ids_of("verb") == [5] and table.ids_of("<s>") == [1]
