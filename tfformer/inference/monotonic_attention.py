"""Monotonic attention for decoding: a window over the source that only moves forward."""

import tensorflow as tf

from tfformer.inference.hypothesis_state import carried, kept
from tfformer.inference.masks import attention_bias
from tfformer.inference.transformer import Inference
from tfformer.search.step import State


class WindowedInference(Inference):
    """The forward pass of a Transformer whose decoder attends to a window of the source.

    Each hypothesis has a source position p, at first the first one. It attends only to positions p
    to p + n - 1. Its next p is the position in this window that gets the most attention in the last
    layer (after the windows of Chorowski et al. 2015 and Tachibana et al. 2017, section 4.2). So p
    never moves backwards and never skips the window. The cache also stores the p of each
    hypothesis.

    Args:
        inference_layer, weights: from `fuse`.
        size: n, the number of positions in the window.
    """

    def __init__(self, inference_layer, weights, size):
        super().__init__(inference_layer, weights)
        self.size = size

    def caches(self, batch, width):
        # [B, 1, C, W]: one entry for each step, as for keys and values.
        return [*super().caches(batch, width), (tf.zeros([batch, 1, 1, width], tf.int32),)]

    def prefill(self, prompt, width, state=None):
        """As `Inference.prefill`. A prompt is read without a window and does not move it."""
        found = super().prefill(prompt, width, state)
        shape = tf.stack([tf.shape(prompt)[0], 1, tf.shape(prompt)[1], width])
        return found._replace(cache=[*found.cache, (tf.zeros(shape, tf.int32),)])

    def step(self, ids, position, visible, state):
        *layers, (places,) = state.cache
        place = carried(places, visible, position, 0)  # [B, W, 1]
        bias = state.memory["bias"]  # [B, 1, 1, S]
        of_source = tf.range(tf.shape(bias)[3])
        inside = (of_source >= place) & (of_source < place + self.size)  # [B, W, S]
        memory = {**state.memory, "bias": bias + attention_bias(inside)[:, None]}  # [B, 1, W, S]
        found = super().step(ids, position, visible, State(memory, layers))
        seen = tf.where(inside, found.attention, -1.0)
        place = tf.argmax(seen, axis=2, output_type=tf.int32)[..., None]  # [B, W, 1]
        return found._replace(cache=[*found.cache, (kept(places, place, position),)])
