"""WordPiece in the graph; the ids of the originals are compared in tests/training/importers."""

import numpy as np
import pytest
import tensorflow as tf
from hard_lines import hard_lines

from tfformer import Tokenizer
from tfformer.config import EOS, UNK
from tfformer.text.learn_vocabulary import extend
from tfformer.text.word_pieces import WordPieces

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PIECES = [
    *LETTERS, *(f"##{one}" for one in LETTERS), "the", "house", "##house", "中", "σ", "##σ", "ς",
    "!", ".", "'", "e", "##é", "[MASK]", "a b",
]  # fmt: skip
PIECES = list(dict.fromkeys(PIECES))


@pytest.fixture(scope="module", params=[(True, None), (False, True), (True, False)])
def side(request):
    return WordPieces(PIECES, *request.param, longest_word=9)


def named(side, text):
    return [side.pieces[n] for n in side.encode(tf.constant([text]))[0].numpy()]


def test_words_by_hand():
    side = WordPieces(PIECES)
    assert named(side, "The HOUSE!") == ["the", "house", "!", "</s>"]
    assert named(side, "thehouse") == ["the", "##house", "</s>"]
    assert named(side, "é中the\u0301x") == ["e", "中", "the", "##x", "</s>"]
    assert named(side, "ΣΣ ς") == ["σ", "##σ", "ς", "</s>"]
    assert named(side, "house☃ a") == ["<unk>", "a", "</s>"]
    assert named(side, "[MASK] </s>") == ["<unk>"] + named(side, "mask")[:-1] + [
        "<unk>", "<unk>", "<unk>", "s", "<unk>", "</s>",
    ]  # fmt: skip
    assert named(WordPieces(PIECES, False, split_chinese=False), "The a中") == 2 * ["<unk>"] + [
        "</s>"
    ]


def test_a_long_word_is_unknown(side):
    assert named(side, "a" * 9)[:-1] == ["a", *["##a"] * 8]
    assert named(side, "a" * 10)[:-1] == ["<unk>"]


@pytest.mark.slow
def test_offsets_select_the_text_of_each_piece(side):
    """Two routes: whole texts, and character by character. The characters of a piece encode to
    it."""
    lines = hard_lines(300)
    ids, starts, ends = side.encode_with_offsets(tf.constant(lines))
    assert ids.to_list() == [row[:-1] for row in side.encode(tf.constant(lines)).to_list()]
    count = 0
    for line, *row in zip(lines, ids.to_list(), starts.to_list(), ends.to_list(), strict=True):
        content = line.encode()
        assert all(a < b for a, b in zip(row[1], row[2], strict=True))
        for n, start, end in zip(*row, strict=True):
            piece = side.pieces[n]
            if n == UNK or piece.startswith("##"):
                continue
            found = named(side, content[start:end].decode())
            assert found[0] == piece
            count += 1
    assert count > 200


def test_word_pieces_are_restored_from_files_and_decode(side):
    tokenizer = Tokenizer(side)
    assert list(tokenizer.files) == ["source.wordpieces"]
    again = Tokenizer.from_files(tokenizer.files)
    assert again.source.is_same(side) and again.sha256 == tokenizer.sha256
    text = tf.constant(["the thehouse a!", "!"])
    np.testing.assert_array_equal(
        again.encode_source(text).to_tensor(), tokenizer.encode_source(text).to_tensor()
    )
    assert again.decode(again.encode_source(text)).numpy().tolist() == [b"the thehouse a !", b"!"]
    longer = side.filled_up(side.size + 5)
    assert longer.size == side.size + 5 and named(longer, "thehouse") == named(side, "thehouse")
    assert again.sample_text(5, 3) and EOS not in side.ids_of("the")
    assert side.pieces[side.mask_id] == "[MASK]"


@pytest.mark.parametrize(
    "pieces", [[], ["a", "a"], ["<s>"], [""], [5], None, ["##"], ["a\x00b", "c"], ["x" * 10_000]]
)
def test_invalid_pieces_are_refused_or_harmless(pieces):
    try:
        side = WordPieces(pieces)
    except (ValueError, TypeError) as error:
        assert "\n" not in str(error)
    else:  # what can be made works
        assert named(side, "q") == ["<unk>", "</s>"]
        assert pieces in (["##"], ["a\x00b", "c"], ["x" * 10_000])


def test_invalid_content_and_extension_are_refused():
    for content in (b"", b"[]", b"{}", b"5", b'[["a"], 1, 2, 3, 4, 5]', b"\xff"):
        with pytest.raises(ValueError, match="source.wordpieces must be a vocabulary"):
            WordPieces.from_content(content, "source.wordpieces")
    with pytest.raises(ValueError, match="WordPieces"):
        extend(WordPieces(PIECES), [["new words"]], 3)
