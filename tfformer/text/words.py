"""Splits texts into words at blanks, and encodes each word."""

from typing import NamedTuple

import tensorflow as tf

from tfformer.config import EOS, UNK
from tfformer.text.vocabularies import clean

# A piece of SentencePiece has at most 16 characters.
CHARACTERS_PER_PIECE = 16


class WordIds(NamedTuple):
    """Encoded texts, with the position of each word.

    ids: RaggedTensor of int32 [B, (S)], each row ending with eos.
    places: RaggedTensor of int32 [B, (W)], the position of each word's first piece.
    """

    ids: tf.RaggedTensor
    places: tf.RaggedTensor


def words_of(text):
    """string [B] -> RaggedTensor of strings [B, (W)]; blanks are U+0020 and control characters."""
    return tf.strings.split(clean(text))


def encode_words(side, words, longest=None):
    """Encode words [B, (W)] one by one, as `WordIds`. A word without any piece becomes unk.

    Args:
        side: a `tfformer.text.vocabularies.Side`.
        words: RaggedTensor of strings.
        longest: the maximum number of positions that will be used; longer words are cut first.
    """
    flat = words.flat_values
    if longest is not None:
        flat = tf.strings.substr(flat, 0, longest * CHARACTERS_PER_PIECE, unit="UTF8_CHAR")
    pieces = side.encode(flat)[:, :-1]  # without eos
    nothing = tf.cast(tf.equal(pieces.row_lengths(), 0), tf.int64)
    unknown = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(nothing)], UNK), nothing)
    pieces = tf.concat([pieces, unknown], axis=1)
    splits = tf.gather(pieces.row_splits, tf.cast(words.row_splits, tf.int64))
    ids = tf.RaggedTensor.from_row_splits(pieces.flat_values, splits)
    begins = pieces.row_starts() - tf.repeat(splits[:-1], words.row_lengths())
    eos = tf.fill([words.nrows(), 1], EOS)
    return WordIds(tf.concat([ids, eos], axis=1), words.with_flat_values(tf.cast(begins, tf.int32)))
