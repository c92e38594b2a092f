"""The inference layers of multi-head attention: self-attention and cross-attention."""

import tensorflow as tf

from tfformer.inference import low_latency
from tfformer.inference.dense import Dense
from tfformer.layers.attention import MultiHeadAttention


class Heads:
    """Splits rows [B * T, N * D] into N tensors of heads [B, H, T, K], and merges them again.

    Keys and values may have fewer heads, G. Then the queries of the H / G heads that share a key
    head stand together, [B, G, H / G * T, K], for their products.

    Args:
        layer: the attention.
        few_rows: whether to use the operations of `tfformer.inference.low_latency`.
    """

    def __init__(self, layer, few_rows):
        self.num_heads, self.head_size = layer.num_heads, layer.head_size
        self.key_value_heads = layer.key_value_heads
        self.shared = self.num_heads // self.key_value_heads
        # The weights already contain the factor 1 / sqrt(K).
        self.scale = layer.head_size**-0.5
        self.product = low_latency.product if few_rows else tf.matmul
        self.softmax = low_latency.softmax if few_rows else tf.nn.softmax
        self.transposed = low_latency.transposed if few_rows else tf.transpose

    def split(self, x, batch, length, parts, num_heads=None):
        """Rows [B * T, parts * N] -> `parts` tensors [B, H, T, K]."""
        heads = num_heads or self.num_heads
        x = tf.reshape(x, [batch, length, parts, heads, self.head_size])  # [B, T, N, H, K]
        return tf.unstack(self.transposed(x, [2, 0, 3, 1, 4]), num=parts)  # N of [B, H, T, K]

    def split_own(self, x, batch, length):
        """Rows of queries, keys and values side by side -> [B, H, T, K] and twice [B, G, T, K]."""
        if self.shared == 1:
            return self.split(x, batch, length, 3)
        queries, others = tf.split(x, [self.width, 2 * self.key_value_width], axis=1)
        (queries,) = self.split(queries, batch, length, 1)
        return queries, *self.split(others, batch, length, 2, self.key_value_heads)

    @property
    def width(self):
        """h K, the width of all heads together."""
        return self.num_heads * self.head_size

    @property
    def key_value_width(self):
        """The total width of all key heads, which is also that of all value heads."""
        return self.key_value_heads * self.head_size

    def merge(self, heads):
        """[B, H, T, K] -> rows [B * T, H * K]."""
        heads = self.transposed(heads, [0, 2, 1, 3])  # [B, T, H, K]
        return tf.reshape(heads, [-1, self.width])  # [B * T, H * K]

    def grouped(self, x):
        """[B, H, T, N] -> [B, G, H / G * T, N]."""
        if self.shared == 1:
            return x
        batch, _, rows, size = tf.unstack(tf.shape(x))
        shape = [batch, self.key_value_heads, self.shared * rows, size]
        return tf.reshape(x, shape)  # [B, G, H / G * T, N]

    def ungrouped(self, x):
        """[B, G, H / G * T, N] -> [B, H, T, N]."""
        if self.shared == 1:
            return x
        batch, _, rows, size = tf.unstack(tf.shape(x))
        shape = [batch, self.num_heads, rows // self.shared, size]
        return tf.reshape(x, shape)  # [B, H, T, N]

    def weights(self, queries, keys, bias):
        """softmax(q k^T + bias) in float32, [B, H, T, S]. The queries are already scaled. The bias
        is for one head or for each."""
        scores = self.product(self.grouped(queries), keys, transpose_b=True)
        return self.softmax(tf.cast(self.ungrouped(scores), tf.float32) + bias)

    def mixed(self, weights, values):
        """Weights [B, H, T, S] and values [B, G, S, K] -> rows [B * T, H * K]."""
        weights = self.grouped(tf.cast(weights, values.dtype))
        return self.merge(self.ungrouped(self.product(weights, values)))


class SelfAttention:
    """Self-attention. One product computes queries, keys and values of an input, [D, 3 D], or less
    if there are fewer key and value heads."""

    def __init__(self, layer, name, fusing):
        self.heads = Heads(layer, fusing.few_rows)
        projections = [layer.query_projection, layer.key_projection, layer.value_projection]
        # The norm would cancel a scale in the query weights, so its gain contains the scale.
        self.has_norms = layer.query_norm is not None
        scale = 1.0 if self.has_norms else self.heads.scale
        self.qkv = Dense(projections, f"{name}/qkv", fusing, [scale, 1.0, 1.0])
        if self.has_norms:
            self.query_norm = fusing.inference_layer(layer.query_norm, f"{name}/query_norm")
            self.key_norm = fusing.inference_layer(layer.key_norm, f"{name}/key_norm")
            fusing.weights[self.query_norm.name]["gain"] *= self.heads.scale
        self.output = Dense([layer.output_projection], f"{name}/output", fusing)
        self.places = layer.places and fusing.inference_layer(layer.places, f"{name}/places")
        self.watcher = None  # as in the layer

    def __call__(self, weights, x, batch, length, attend):
        """Rows -> rows; `attend(queries, keys, values)`, each [B, H, T, K], returns rows."""
        queries, keys, values = self.heads.split_own(self.qkv(weights, x), batch, length)
        if self.has_norms:
            queries, keys = self.query_norm(weights, queries), self.key_norm(weights, keys)
        return self.output(weights, attend(queries, keys, values))

    def attend(self, weights, queries, keys, values, bias, causal=False, caches=None):
        """Attend at all positions at once: heads [B, H, T, K] -> rows [B * T, H * K].

        Args:
            bias: added to the scores. It hides padding and, if `causal`, later positions.
            caches: a list that receives the keys and values for a cache. Default: none.
        """
        if self.places is not None:
            positions = tf.range(tf.shape(keys)[2])
            queries, keys = (self.places.turned(weights, x, positions) for x in (queries, keys))
            bias = self.places.added(weights, bias, positions, positions, causal)
        if caches is not None:
            caches.append((keys, values))
        attention = self.heads.weights(queries, keys, bias)
        if self.watcher is not None:
            self.watcher(attention)
        return self.heads.mixed(attention, values)


class CrossAttention:
    """Cross-attention: only queries. One product computes keys and values for all layers."""

    def __init__(self, layer, name, fusing):
        self.heads = Heads(layer, fusing.few_rows)
        self.query = Dense([layer.query_projection], f"{name}/query", fusing, [self.heads.scale])
        self.output = Dense([layer.output_projection], f"{name}/output", fusing)
        self.location = layer.location and fusing.inference_layer(
            layer.location, f"{name}/location"
        )
        self.watcher = None  # as in the layer

    def __call__(self, weights, x, batch, length, keys, values, bias, below=None):
        """Rows -> rows, and the attention weights, float32 [B, H, T, S]. `below` are the weights of
        the layer below, for location-aware attention."""
        if self.location is not None:
            bias = bias + self.location(weights, below, bias)
        (queries,) = self.heads.split(self.query(weights, x), batch, length, 1)
        attention = self.heads.weights(queries, keys, bias)
        if self.watcher is not None:
            self.watcher(attention)
        return self.output(weights, self.heads.mixed(attention, values)), attention


def attention(layer, name, fusing, reads_memory=False):
    """Make the inference layer of an attention: self-attention, or cross-attention."""
    return (CrossAttention if reads_memory else SelfAttention)(layer, name, fusing)


INFERENCE_LAYERS = {MultiHeadAttention: attention}
