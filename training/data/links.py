"""Which words the tokens of a batch are of, and which of these belong together."""

import tensorflow as tf

from tfformer.config import EOS
from tfformer.text.sides import SPACE, PieceTable


class Links:
    """Which words the tokens of a batch are of, and which of these are linked.

    Words are told by their pieces, so it does not matter how a word is taken apart this time.

    Args:
        tokenizer: a `Tokenizer`.
    """

    def __init__(self, tokenizer):
        self.begins = []
        for side in (tokenizer.source, tokenizer.target):
            # In a table of pieces each is what stood between blanks: a word.
            first = "" if isinstance(side, PieceTable) else SPACE
            self.begins.append(tf.constant([piece.startswith(first) for piece in side.pieces]))

    def fit(self, source, target, words):
        """Whether the pieces of texts have as many words as the texts have between blanks.

        Some characters become a blank, or several words, before a text is cut into pieces.

        Args:
            source, target: as in `inputs`.
            words: integers [B, 2], the words of both texts.

        Returns:
            boolean [B].
        """
        counts = [
            tf.reduce_max(words_of(ids, begins), axis=1)
            for ids, begins in zip((source, target), self.begins, strict=True)
        ]
        return tf.reduce_all(tf.stack(counts, axis=1) == words, axis=1)

    def inputs(self, source, target, links, padded):
        """What `GuidedAttention` needs besides ids.

        Args:
            source, target: RaggedTensors of ids [B, (S)] and [B, (T)], each row ending with eos.
            links: string [B].
            padded: see `training.tasks.task.Task.example`.

        Returns:
            {"source_words": int32 [B, S], "target_words": int32 [B, T], "links": int32 [B, 2 L]}:
            the word of each token of the source, and of each label, from 1 on; eos and padding are
            of none, 0. Links are words too, of the source and of the target in turn, and 0.
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
    """The number of the word that each of the ids [B, (T)] is of, from 1 on; eos is of none."""
    first = tf.cast(tf.gather(begins, ids.flat_values), tf.int32)
    before = tf.cumsum(first)
    # The first piece begins a word, whatever it is; what was before it is taken away.
    starts = tf.gather(before, ids.row_starts())
    words = before - tf.repeat(starts, ids.row_lengths()) + 1
    return ids.with_flat_values(tf.where(ids.flat_values == EOS, 0, words))
