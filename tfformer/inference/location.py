"""The inference layer of location-aware attention."""

import tensorflow as tf

from tfformer.layers import location
from tfformer.layers.weight_matrices import float_matrix


class Location:
    """A convolution over the positions of the source."""

    def __init__(self, layer, name, fusing):
        self.name, self.num_heads = name, layer.num_heads
        fusing.weights[name] = {"kernel": float_matrix(layer)}

    def __call__(self, weights, below, bias):
        """The numbers added to the scores, float32 [B, H, T, S].

        Args:
            below: the weights of the layer below, float32 [B, H, T, S]; None: uniform weights.
            bias: [B, 1, 1 or T, S], which hides padding.
        """
        if below is None:
            real = tf.cast(bias == 0, tf.float32)
            below = real / tf.maximum(tf.reduce_sum(real, axis=-1, keepdims=True), 1.0)
            below = tf.repeat(below, self.num_heads, axis=1)  # [B, H, 1 or T, S]
        batch, _, length, size = tf.unstack(tf.shape(below))
        rows = tf.transpose(below, [0, 2, 3, 1])  # [B, T, S, H]
        rows = tf.reshape(rows, [-1, size, self.num_heads])  # [B * T, S, H]
        found = tf.nn.conv1d(rows, weights[self.name]["kernel"], stride=1, padding="SAME")
        found = tf.reshape(found, [batch, length, size, self.num_heads])  # [B, T, S, H]
        return tf.transpose(found, [0, 3, 1, 2])  # [B, H, T, S]


INFERENCE_LAYERS = {location.Location: Location}
