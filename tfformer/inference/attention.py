"""The twins of multi-head attention: to the sequence itself, and to the memory."""

import tensorflow as tf

from tfformer.inference.dense import Dense
from tfformer.layers.attention import MultiHeadAttention


def attention_weights(queries, keys, bias):
    """softmax(q k^T + bias) in float32, [B, H, T, S]; the queries are scaled already."""
    scores = tf.matmul(queries, keys, transpose_b=True)
    return tf.nn.softmax(tf.cast(scores, tf.float32) + bias)


class Heads:
    """How rows [B * T, N * D] are N tensors of heads [B, H, T, K], and back."""

    def __init__(self, layer):
        self.num_heads, self.head_size = layer.num_heads, layer.head_size
        # q / sqrt(K) is in the weights.
        self.scale = layer.head_size**-0.5

    def split(self, x, batch, length, parts):
        """Rows [B * T, parts * D] -> `parts` tensors [B, H, T, K]."""
        x = tf.reshape(x, [batch, length, parts, self.num_heads, self.head_size])  # [B, T, N, H, K]
        return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), num=parts)  # N of [B, H, T, K]

    def merge(self, heads):
        """[B, H, T, K] -> rows [B * T, D]."""
        heads = tf.transpose(heads, [0, 2, 1, 3])  # [B, T, H, K]
        return tf.reshape(heads, [-1, self.num_heads * self.head_size])  # [B * T, D]

    def attend(self, queries, keys, values, bias):
        """Heads [B, H, T, K] -> rows [B * T, D]."""
        weights = attention_weights(queries, keys, bias)
        return self.merge(tf.matmul(tf.cast(weights, values.dtype), values))


class SelfAttention:
    """Queries, keys and values of one input are one product, [D, 3 D]."""

    def __init__(self, layer, name, fusing):
        self.heads = Heads(layer)
        projections = [layer.query_projection, layer.key_projection, layer.value_projection]
        self.qkv = Dense(projections, f"{name}/qkv", fusing, [self.heads.scale, 1.0, 1.0])
        self.output = Dense([layer.output_projection], f"{name}/output", fusing)

    def __call__(self, weights, x, batch, length, attend):
        """Rows to rows; `attend(queries, keys, values)`, each [B, H, T, K], gives rows between."""
        heads = self.heads.split(self.qkv(weights, x), batch, length, 3)
        return self.output(weights, attend(*heads))


class CrossAttention:
    """Queries alone: the memory's keys and values are computed once, for all layers together."""

    def __init__(self, layer, name, fusing):
        self.heads = Heads(layer)
        self.query = Dense([layer.query_projection], f"{name}/query", fusing, [self.heads.scale])
        self.output = Dense([layer.output_projection], f"{name}/output", fusing)

    def __call__(self, weights, x, batch, length, keys, values, bias):
        """Rows to rows, and the attention weights, float32 [B, H, T, S]."""
        (queries,) = self.heads.split(self.query(weights, x), batch, length, 1)
        attention = attention_weights(queries, keys, bias)
        heads = tf.matmul(tf.cast(attention, values.dtype), values)
        return self.output(weights, self.heads.merge(heads)), attention


def attention(layer, name, fusing, reads_memory=False):
    """The twin of an attention: to the memory, or to the sequence itself (the default)."""
    return (CrossAttention if reads_memory else SelfAttention)(layer, name, fusing)


TWINS = {MultiHeadAttention: attention}
