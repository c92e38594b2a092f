"""The inference layers of positions inside self-attention."""

import numpy as np
import tensorflow as tf

from tfformer.layers import relative_positions


class Places:
    """Base class of the inference layers below: rotates nothing and adds nothing."""

    def __init__(self, layer, name, fusing):
        self.layer, self.name = layer, name

    def turned(self, weights, x, positions):
        """Queries or keys [B, H, T, K], rotated for `positions`, int32 [T]. A scalar is one
        position for all of them."""
        return x

    def added(self, weights, bias, queries, keys, causal):
        """A bias [B, 1 or H, T, S] of scores, plus the bias for the distances of keys from queries.

        Args:
            queries, keys: their positions, int32 [T] and [S]; `queries` [1]: one position for all.
            causal: whether keys after their query are hidden anyway.
        """
        return bias


class Rotary(Places):
    """Rotates each pair of features; a table holds (sin, cos) for all positions."""

    def __init__(self, layer, name, fusing):
        super().__init__(layer, name, fusing)
        self.name = f"rotary_{layer.head_size}"
        if self.name not in fusing.weights:
            table = layer.angles(tf.range(fusing.num_positions))
            fusing.weights[self.name] = {"table": tf.cast(table, fusing.dtype)}

    def turned(self, weights, x, positions):
        size = self.layer.head_size
        angles = tf.gather(weights[self.name]["table"], positions)  # [T, K]
        angles = tf.reshape(angles, [-1, size // 2, 2])  # [T, K / 2, 2]
        sin, cos = angles[..., 0], angles[..., 1]
        shape = tf.shape(x)
        pairs = tf.reshape(x, tf.concat([shape[:-1], [size // 2, 2]], 0))  # [B, H, T, K / 2, 2]
        even, odd = pairs[..., 0], pairs[..., 1]
        turned = tf.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
        return tf.reshape(turned, shape)  # [B, H, T, K]


class Alibi(Places):
    """-m |i - j| for each head."""

    def added(self, weights, bias, queries, keys, causal):
        slopes = self.layer.slopes
        distances = tf.cast(keys[None] - queries[:, None], tf.float32)  # [T, S]
        before = slopes * tf.minimum(distances, 0)
        if causal:
            return bias + before
        return bias + before - slopes[::-1] * tf.maximum(distances, 0)


class RelativeBias(Places):
    """The learned table of the layer; the graph maps each distance to a row of the table."""

    def __init__(self, layer, name, fusing):
        super().__init__(layer, name, fusing)
        fusing.weights[name] = {"table": tf.cast(layer.table, tf.float32)}

    def added(self, weights, bias, queries, keys, causal):
        maximum = self.layer.max_distance
        buckets = self.layer.buckets(np.arange(-maximum, maximum + 1), causal).astype("int32")
        table = tf.transpose(tf.gather(weights[self.name]["table"], buckets))  # [H, 2 maximum + 1]
        distances = (
            tf.clip_by_value(keys[None] - queries[:, None], -maximum, maximum) + maximum
        )  # [T, S]
        return bias + tf.gather(table, distances, axis=1)  # [H, T, S]


INFERENCE_LAYERS = {
    relative_positions.Rotary: Rotary,
    relative_positions.Alibi: Alibi,
    relative_positions.RelativeBias: RelativeBias,
}
