"""A SentencePiece model with other ids gives the same texts and pieces."""

import io

import pytest
import sentencepiece
import tensorflow as tf

from tfformer.text.renumbering import regular_pieces, renumbered
from tfformer.text.vocabularies import FILLING, SPECIAL

TEXTS = ["a house by the lake", "the lake by a house", "eight trees, a house"] * 9


def learned(kind="unigram"):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, model_type=kind, vocab_size=37,
        hard_vocab_limit=False, num_threads=1, minloglevel=2,
    )  # fmt: skip
    return model.getvalue()


@pytest.fixture(scope="module")
def content():
    return learned()


def pieces_of(content, texts):
    return sentencepiece.SentencePieceProcessor(model_proto=content).encode(texts, out_type=str)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
def test_renumbered_model_segments_texts_as_before(kind):
    content = learned(kind)
    names = regular_pieces(content)[::-1]
    side = renumbered(content, names)
    assert side.pieces == [*SPECIAL, *names] and side.codes is None
    ids = side.encode(tf.constant(TEXTS[:3]))[:, :-1]
    found = [[side.pieces[n] for n in row] for row in ids.to_list()]
    assert found == pieces_of(content, TEXTS[:3])
    assert [text.decode() for text in side.decode(ids).numpy()] == TEXTS[:3]


def test_foreign_piece_is_never_encoded_and_filling_never_decoded(content):
    names = regular_pieces(content)
    side = renumbered(content, ["▁the▁lake", f"{FILLING}x", ">>de<<", *names], codes=True)
    expected = pieces_of(content, ["the lake"])[0]
    ids = side.encode(tf.constant(["the lake", ">>de<<the lake"])).to_list()
    assert [side.pieces[n] for n in ids[0][:-1]] == expected and ids[1] == [6, *ids[0]]
    assert side.decode(tf.ragged.constant([[4, 5]])).numpy() == [b"the lake"]


def test_unknown_piece_is_looked_up_by_its_spelling(content):
    names = regular_pieces(content)
    assert not set("JUW") & set("".join(names))
    side = renumbered(content, [*names, "J", "U", "WWW", "Jay", ">>J<<", "▁W"], codes=True)
    texts = ["a Jake by the lUke", "WWW a lake", "a Jay ☃ W", "U", "the lake"]
    for text, ids in zip(texts, side.encode(tf.constant(texts)).to_list(), strict=True):
        found = [side.pieces[n] for n in ids[:-1]]
        known = set(side.pieces)
        assert found == [p if p in known else "<unk>" for p in pieces_of(content, [text])[0]]
    # Characters without a piece become one unknown piece.
    [ids] = side.encode(tf.constant(["JU"])).to_list()
    assert [side.pieces[n] for n in ids[-3:-1]] == ["J", "U"]
    assert pieces_of(content, ["JU"])[0][-1] == "JU"


def test_missing_or_unwritten_piece_is_encoded_by_other_pieces(content):
    names = regular_pieces(content)
    whole = pieces_of(content, ["the lake"])[0]
    longest = max(whole, key=len)
    assert len(longest) > 1
    for side in (
        renumbered(content, [name for name in names if name != longest]),
        renumbered(content, names, unwritten=[longest]),
    ):
        [ids] = side.encode(tf.constant(["the lake"])).to_list()
        found = [side.pieces[n] for n in ids[:-1]]
        assert longest not in found and "".join(found) == "".join(whole)


def test_model_that_cannot_be_renumbered_is_refused(content):
    names, merged = regular_pieces(content), regular_pieces(learned("bpe"))
    halves = [one[:n] for one in merged for n in range(2, len(one)) if one[:n] not in merged]
    for given, pieces, said in (
        (b"no model", names, "here must be a SentencePiece model, got 8 bytes"),
        (b"", names, "here must be a SentencePiece model with pieces, got none"),
        (content, [*names, names[0]], "pieces of here must each be there once"),
        (content, [*names, "<s>"], "pieces of here must each be there once"),
        (learned("bpe"), [*merged, halves[0]], "must be a unigram model where .* has more pieces"),
        (learned("bpe"), merged[1:], "must be a unigram model where .* has fewer pieces"),
    ):
        with pytest.raises(ValueError, match=said):
            renumbered(given, pieces, "here")


def test_bpe_keeps_its_merges_with_new_pieces():
    """Some are in no text; two characters are merged last, and split again."""
    names, texts = regular_pieces(learned("bpe")), [*TEXTS, "xyxy the lakexy", "☃ ☃☃"]
    before = renumbered(learned("bpe"), names)
    used = max(sum(pieces_of(learned("bpe"), texts), []), key=len)
    more = [*names, f"{FILLING}x", "xy", "☃", "☃" * 3 + "x"]
    after = renumbered(learned("bpe"), more, unwritten=[used])
    found = after.encode(tf.constant(texts)).to_list()
    found = [[after.pieces[n] for n in ids[:-1]] for ids in found]
    expected = before.encode(tf.constant(texts)).to_list()
    expected = [[before.pieces[n] for n in ids[:-1]] for ids in expected]
    assert any(used in pieces for pieces in expected)
    assert not any(used in pieces for pieces in found)
    assert found[-1].count("☃") == 3
    for ours, theirs in zip(found[:-1], expected[:-1], strict=True):
        assert "".join(ours) == "".join(theirs)
        if used not in theirs:
            assert ours == theirs


def test_byte_pieces_are_kept_all_or_none():
    """All bytes or none: without them, missing characters are the unknown piece."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=300, minloglevel=2,
        hard_vocab_limit=False, byte_fallback=True,
    )  # fmt: skip
    names = regular_pieces(model.getvalue())
    hidden = [f"<0x{n:02X}>" for n in range(256)]
    for left_out, said in (([], ["<0xC3>", "<0xBC>"]), (hidden, ["<unk>"])):
        side = renumbered(model.getvalue(), [name for name in names if name not in left_out])
        [ids] = side.encode(tf.constant(["lake ü"])).to_list()
        assert [side.pieces[n] for n in ids[:-1]][-len(said) :] == said
    with pytest.raises(ValueError, match="must have all 256 bytes or none, got none for <0xBC>"):
        renumbered(model.getvalue(), [name for name in names if name != "<0xBC>"])
