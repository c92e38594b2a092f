"""A question and a text as one row of ids, and where in the text each piece stands."""

from typing import NamedTuple

import tensorflow as tf

from tfformer.config import EOS, PAD

# A piece of SentencePiece has at most 16 characters.
CHARACTERS_PER_PIECE = 16


class QuestionIds(NamedTuple):
    """Questions and texts as a model reads them.

    ids: int32 [B, S]: the question, eos, the text, eos; padding behind.
    first: int32 [B], the place of the text's first piece.
    starts, ends: RaggedTensors of int32 [B, (N)], the bytes of the text that each of its pieces
        stands for: from `starts` on, before `ends`.
    truncated: boolean [B], whether one of the two was cut.
    """

    ids: tf.Tensor
    first: tf.Tensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    truncated: tf.Tensor


def valid_utf8(text):
    """Any bytes, string [B] -> valid UTF-8: what is none is U+FFFD."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def whole_characters(text):
    """Any bytes, string [B] -> valid UTF-8 of as many characters, in which each control character
    is a blank."""
    return tf.strings.regex_replace(valid_utf8(text), r"\p{Cc}", " ")


def split_at_tab(text):
    """string [B] -> what stands before the first tab, and what behind it."""
    text = valid_utf8(text)
    question = tf.strings.regex_replace(text, r"(?s)\t.*$", "")
    return question, tf.strings.regex_replace(text, r"(?s)^[^\t]*\t?", "")


def encode_question(side, question, text, longest):
    """Questions and texts, string [B] each, as `QuestionIds` of at most `longest` places.

    A question has at most half of them, and the text what is left; either is cut behind.

    Args:
        side: a `tfformer.text.sides.SentencePieceModel`.
        question, text: as `whole_characters` gives them.
        longest: places at most, at least 4.
    """
    most = longest * CHARACTERS_PER_PIECE
    asked, read = (tf.strings.substr(one, 0, most, unit="UTF8_CHAR") for one in (question, text))
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
