"""The forward pass of the recurrent model for a search, by its own layers. It is not exported."""

import tensorflow as tf

from tfformer.inference.hypothesis_state import carried, kept
from tfformer.search.step import State, StepResult


class RecurrentInference:
    """Makes a `Recurrent` model searchable by `tfformer.search`; its cache is the layers' states.

    Args:
        model: the model.
    """

    def __init__(self, model):
        self.model, self.vocabulary_size = model, model.config.target_vocabulary_size
        self.size = model.config.num_decoder_layers * model.config.d_model  # N D

    def memory(self, source_ids):
        """source_ids [B, S] -> the memory of the decoder."""
        return self.model.encode(source_ids, training=False)

    def start(self, source_ids, width):
        """The `State` of a search with W = `width` beams, before the first step."""
        shape = tf.stack([tf.shape(source_ids)[0], 1, 1, width * self.size])
        return State(self.memory(source_ids), [tf.zeros(shape, self.model.compute_dtype)])

    def step(self, ids, position, visible, state):
        """The step function of `tfformer.search`; its cache is [B, 1, C, W * N D]."""
        (cache,) = state.cache
        first = tf.cast(state.memory["first"], cache.dtype)[:, None]  # [B, 1, N D]
        states = carried(cache, visible, position, first)  # [B, W, N D]
        x = self.model.target_embedding(ids)
        x, states, attention = self.model.decoder.step(x, states, state.memory)
        logits = tf.cast(self.model.logits(x), tf.float32)
        return StepResult(logits, [kept(cache, states, position)], attention)

    def vocabulary_ids(self, ids):
        """Convert ids of a search to ids of the vocabulary: no change."""
        return ids

    def decode(self, target_ids, memory):
        """target_ids [B, T] -> logits float32 [B, T, V], attention weights float32 [B, T, S]."""
        logits, attention = self.model.decode(target_ids, memory, training=False)
        return tf.cast(logits, tf.float32), attention[0][:, 0]

    def log_probs(self, target_ids, labels, memory):
        """log P(label) at all positions of target_ids [B, T], float32 [B, T]."""
        log_probs = tf.nn.log_softmax(self.decode(target_ids, memory)[0])
        return tf.gather(log_probs, labels, batch_dims=2)
