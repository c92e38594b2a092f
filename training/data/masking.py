"""Masked words: what a masked language model has to find (Devlin et al. 2019, section 3.1)."""

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD
from tfformer.layers.rows import token_places
from tfformer.text.sides import SPACE

CHOSEN = 0.15  # of the words, and of a row one at least
MASKED, RANDOM = 0.8, 0.1  # of those; the others stay


class Masking:
    """Chooses whole words of texts, and hides them.

    A word is the pieces from one that begins with SentencePiece's blank to the next; a text that
    goes on in another row begins with one too. Of the chosen ones 80 % become bos, 10 % random
    pieces, 10 % stay as they are.

    Args:
        tokenizer: a `Tokenizer`.
        packed: whether batches say where their gaps are, see `asked_alone`. Default False.
    """

    def __init__(self, tokenizer, packed=False):
        self.packed = packed
        pieces = tokenizer.source.pieces
        self.size = len(pieces)
        self.begins = tf.constant([piece.startswith(SPACE) for piece in pieces])

    def joined(self, ids, labels, texts, seed):
        """A batch of full rows, int32 [B, T] each, as `JoinedBatches` has it: `labels` are the
        texts, with eos."""
        ids, labels = self.masked(labels, texts, seed)
        inputs = {"ids": ids, "texts": texts}
        return asked_alone(inputs, labels) if self.packed else (inputs, labels)

    def masked(self, ids, texts, seed):
        """ids [B, T] with some words hidden, and what these were; padding where none is.

        Args:
            ids: int32 [B, T], each text with eos.
            texts: int32 [B, T], of which text each is; 0 is padding.
            seed: integers [2]; another one chooses others.
        """
        words = self.words(ids, texts)
        shape = tf.shape(ids)
        seeds = tf.cast(seed, tf.int64) + tf.constant([[0, 0], [1, 0], [2, 0]], tf.int64)
        # A number for each word of a row, which all of its pieces have.
        chance, how = (
            tf.gather(tf.random.stateless_uniform(shape, seeds[n]), words, batch_dims=1)
            for n in range(2)
        )
        # Of each row one at least: a validation that hides nothing would measure nothing.
        is_word = ids > EOS
        least = tf.reduce_min(tf.where(is_word, chance, 1.0), axis=1, keepdims=True)
        chosen = is_word & (chance <= tf.maximum(CHOSEN, least))
        drawn = tf.random.stateless_uniform(shape, seeds[2], EOS + 1, self.size, tf.int32)
        hidden = tf.where(how < MASKED, BOS, tf.where(how < MASKED + RANDOM, drawn, ids))
        return tf.where(chosen, hidden, ids), tf.where(chosen, ids, PAD)

    def words(self, ids, texts):
        """The number of the word in its row that each place is of, int32 [B, T], from 0 on; eos and
        padding are of words of their own."""
        begins = tf.gather(self.begins, ids) | (ids <= EOS)
        other = tf.not_equal(texts[:, 1:], texts[:, :-1])
        first = tf.ones_like(ids[:, :1], tf.bool)
        after = tf.concat([tf.zeros_like(first), ids[:, :-1] <= EOS], axis=1)
        begins |= tf.concat([first, other], axis=1) | after
        return tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1


def asked_alone(inputs, labels, passes=1):
    """A batch whose logits are computed at the gaps alone, one place in seven: the same loss, and
    the same gradients. (There are no more `passes` than one.)"""
    asked = token_places(labels)
    labels = tf.gather(tf.reshape(labels, [-1]), asked)  # [N]
    return {**inputs, "asked": asked}, labels
