"""A forward pass in which the first token of each target is given, such as a language's code."""

import tensorflow as tf

from tfformer.search.step import State


class FirstToken:
    """Makes the first token of each target certain, so every search returns it, with probability 1.

    Args:
        inference: the forward pass, such as an `Inference` or an `Ensemble`.
        first: int32 [1] or [B], the first token of each sentence.
    """

    def __init__(self, inference, first):
        self.inference, self.first = inference, first
        self.vocabulary_size = inference.vocabulary_size

    def start(self, source_ids, width):
        """As that of the forward pass. The memory also has the first tokens."""
        memory, cache = self.inference.start(source_ids, width)
        first = tf.broadcast_to(self.first, tf.shape(source_ids)[:1])  # [B]
        return State((memory, first), cache)

    def step(self, ids, position, visible, state):
        """The step function of `tfformer.search`."""
        memory, first = state.memory
        found = self.inference.step(ids, position, visible, State(memory, state.cache))

        def certain():
            size = tf.shape(found.logits)[2]
            others = tf.one_hot(first, size, 0.0, float("-inf"))[:, None]  # [B, 1, V]
            return tf.broadcast_to(tf.cast(others, found.logits.dtype), tf.shape(found.logits))

        logits = tf.cond(tf.equal(position, 0), certain, lambda: found.logits)
        return found._replace(logits=tf.ensure_shape(logits, found.logits.shape))

    def vocabulary_ids(self, ids):
        """Convert ids of a search to ids of the vocabulary."""
        return self.inference.vocabulary_ids(ids)
