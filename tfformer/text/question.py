"""Encodes a question and a text as one row of ids, with the byte offsets of each text piece."""

from typing import NamedTuple

import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.text.vocabularies import valid_utf8

# A piece of SentencePiece has at most 16 characters.
CHARACTERS_PER_PIECE = 16


class QuestionIds(NamedTuple):
    """Encoded questions and texts.

    ids: int32 [B, S]: the question, eos, the text, eos; then padding.
    first: int32 [B], the position of the text's first piece.
    starts, ends: RaggedTensors of int32 [B, (N)], the byte offsets of each text piece in the text:
        from `starts` up to but without `ends`.
    truncated: boolean [B], whether question or text was cut.
    """

    ids: tf.Tensor
    first: tf.Tensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    truncated: tf.Tensor


def whole_characters(side, text):
    """Any bytes, string [B] -> valid UTF-8 with the same number of characters. If `side` does not
    read control characters as they are, they become spaces."""
    text = valid_utf8(text)
    return tf.strings.regex_replace(text, r"\p{Cc}", " ") if side.replaces_control else text


def split_at_tab(text):
    """string [B] -> the part before the first tab, and the part after it."""
    text = valid_utf8(text)
    question = tf.strings.regex_replace(text, r"(?s)\t.*$", "")
    return question, tf.strings.regex_replace(text, r"(?s)^[^\t]*\t?", "")


def encode_question(side, question, text, longest):
    """Encode questions and texts, string [B] each, as `QuestionIds` of at most `longest` tokens.

    A question gets at most half of them, and the text gets the rest. Both are cut at the end.

    Args:
        side: a `Side` with `encode_with_offsets`.
        question, text: from `whole_characters`.
        longest: the maximum number of tokens, at least 4.
    """
    maximum = longest * CHARACTERS_PER_PIECE
    asked, read = (tf.strings.substr(one, 0, maximum, unit="UTF8_CHAR") for one in (question, text))
    cut = (tf.strings.length(asked) < tf.strings.length(question)) | (
        tf.strings.length(read) < tf.strings.length(text)
    )
    asked = side.encode(asked)[:, :-1]
    ids, starts, ends = side.encode_with_offsets(read)
    kept = asked[:, : longest // 2 - 1]
    room = longest - 2 - kept.row_lengths()
    inside = tf.ragged.range(tf.minimum(ids.row_lengths(), room))
    cut |= (asked.row_lengths() > kept.row_lengths()) | (ids.row_lengths() > room)
    ids, starts, ends = (tf.gather(one, inside, batch_dims=1) for one in (ids, starts, ends))
    eos = tf.fill([tf.shape(question)[0], 1], EOS)
    return QuestionIds(
        tf.concat([kept, eos, ids, eos], axis=1).to_tensor(PAD),
        tf.cast(kept.row_lengths(), tf.int32) + 1,
        starts,
        ends,
        cut,
    )
