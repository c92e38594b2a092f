"""Masks words for a masked language model to predict (Devlin et al. 2019, section 3.1)."""

import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.layers.packing import token_places

CHOSEN = 0.15  # share of the words, with at least one in each row
MASKED, RANDOM = 0.8, 0.1  # shares of the chosen words; the others stay


class Masking:
    """Chooses whole words of texts and hides them.

    A word begins with a piece that has SentencePiece's blank, or that begins a word in another
    vocabulary, and continues to the next such piece. A text that continues in another row also
    begins with a word. Of the chosen words, 80 % become the vocabulary's mask token, mostly bos,
    10 % become random pieces and 10 % stay. With `packed`, batches give the positions of their
    gaps, see `asked_alone`.
    """

    def __init__(self, tokenizer, packed=False):
        self.packed = packed
        self.size = tokenizer.source.size
        self.begins = tf.constant(tokenizer.source.begins_word)
        self.mask = tokenizer.source.mask_id

    def joined(self, ids, labels, texts, seed):
        """A batch of full rows, int32 [B, T] each, from `JoinedBatches`: `labels` are the texts
        with eos."""
        ids, labels = self.masked(labels, texts, seed)
        inputs = {"ids": ids, "texts": texts}
        return asked_alone(inputs, labels) if self.packed else (inputs, labels)

    def masked(self, ids, texts, seed):
        """ids [B, T] with some words hidden, and labels with the hidden ids and padding elsewhere.

        `texts`, int32 [B, T], are the numbers of the text of each id; 0 is padding. Another seed,
        integers [2], chooses other words.
        """
        words = self.words(ids, texts)
        shape = tf.shape(ids)
        seeds = tf.cast(seed, tf.int64) + tf.constant([[0, 0], [1, 0], [2, 0]], tf.int64)
        # One number for each word of a row, the same for all its pieces.
        chance, how = (
            tf.gather(tf.random.stateless_uniform(shape, seeds[n]), words, batch_dims=1)
            for n in range(2)
        )
        # At least one in each row: a validation that hides nothing would measure nothing.
        is_word = ids > EOS
        minimum = tf.reduce_min(tf.where(is_word, chance, 1.0), axis=1, keepdims=True)
        chosen = is_word & (chance <= tf.maximum(CHOSEN, minimum))
        drawn = tf.random.stateless_uniform(shape, seeds[2], EOS + 1, self.size, tf.int32)
        hidden = tf.where(how < MASKED, self.mask, tf.where(how < MASKED + RANDOM, drawn, ids))
        return tf.where(chosen, hidden, ids), tf.where(chosen, ids, PAD)

    def words(self, ids, texts):
        """The number of the word of each position in its row, int32 [B, T], from 0; each eos and
        each padding position counts as a separate word."""
        begins = tf.gather(self.begins, ids) | (ids <= EOS)
        other = tf.not_equal(texts[:, 1:], texts[:, :-1])
        first = tf.ones_like(ids[:, :1], tf.bool)
        after = tf.concat([tf.zeros_like(first), ids[:, :-1] <= EOS], axis=1)
        begins |= tf.concat([first, other], axis=1) | after
        return tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1


def asked_alone(inputs, labels, passes=1):
    """A batch whose logits are computed only at the gaps, one position in seven.

    Loss and gradients are the same. (`passes` is always 1.)
    """
    asked = token_places(labels)
    labels = tf.gather(tf.reshape(labels, [-1]), asked)  # [N]
    return {**inputs, "asked": asked}, labels
