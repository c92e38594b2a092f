"""Finds the words that the tokens of a batch belong to, and the links between words."""

import tensorflow as tf

from tfformer.config import EOS
from tfformer.text.vocabularies import SPACE, PieceTable


class Links:
    """Finds the word of each token of a batch, and which words are linked.

    Words are recognised by their pieces, so any segmentation of a word works.
    """

    def __init__(self, tokenizer):
        self.begins = []
        for side in (tokenizer.source, tokenizer.target):
            # In a table, each piece is a whole word, separated by blanks.
            first = "" if isinstance(side, PieceTable) else SPACE
            self.begins.append(tf.constant([piece.startswith(first) for piece in side.pieces]))

    def fit(self, source, target, words):
        """Whether the pieces of each text form as many words, [B, 2], as it has between blanks:
        [B].

        The numbers can differ: before a text is cut into pieces, some characters become a blank or
        several words.
        """
        counts = [
            tf.reduce_max(words_of(ids, begins), axis=1)
            for ids, begins in zip((source, target), self.begins, strict=True)
        ]
        return tf.reduce_all(tf.stack(counts, axis=1) == words, axis=1)

    def inputs(self, source, target, links, padded):
        """The inputs that `GuidedAttention` needs in addition to ids.

        `source` and `target` are ids [B, (S)] and [B, (T)] that end with eos, `links` is string
        [B].

        Returns:
            {"source_words": int32 [B, S], "target_words": int32 [B, T], "links": int32 [B, 2 L]}:
            the number of the word of each source token and of each label, from 1; 0 for eos and
            padding. "links" has the source word and the target word of each link in turn, then 0.
        """
        numbers = tf.strings.split(tf.strings.regex_replace(links, "-", " "))
        numbers = numbers.with_flat_values(tf.strings.to_number(numbers.flat_values, tf.int32) + 1)
        width = tf.maximum(tf.cast(numbers.bounding_shape()[1], tf.int32), 2)
        return {
            "source_words": padded(words_of(source, self.begins[0])),
            "target_words": padded(words_of(target, self.begins[1])),
            "links": padded(numbers, width),
        }


def words_of(ids, begins):
    """The number of the word of each of the ids [B, (T)], from 1; 0 for eos."""
    first = tf.cast(tf.gather(begins, ids.flat_values), tf.int32)
    before = tf.cumsum(first)
    # The first piece of a row always begins a word; subtract the count before it.
    starts = tf.gather(before, ids.row_starts())
    words = before - tf.repeat(starts, ids.row_lengths()) + 1
    return ids.with_flat_values(tf.where(ids.flat_values == EOS, 0, words))
