"""The twin of the output layer."""

import tensorflow as tf

from tfformer.inference.dense import columns, padded_columns
from tfformer.layers import output


class Output:
    """logits = x W + b in float32; W [D, V] is stored as it is multiplied with, also where it is
    the transpose of an embedding.

    Args:
        layer, name, fusing: of every twin.
        embedding: the layer of the embedding that is tied to it. Default: none.
    """

    def __init__(self, layer, name, fusing, embedding=None):
        self.name, self.size, self.has_bias = name, layer.vocabulary_size, layer.use_bias
        if layer.tied:
            kernel = tf.transpose(tf.cast(embedding.embeddings, fusing.dtype))  # [D, V]
        else:
            kernel = tf.cast(layer.kernel, fusing.dtype)
        fusing.weights[name] = {"kernel": padded_columns(kernel)}
        if layer.use_bias:
            fusing.weights[name]["bias"] = tf.cast(layer.bias, tf.float32)

    def __call__(self, weights, x):
        """Rows [R, D] -> float32 [R, V]."""
        own = weights[self.name]
        logits = tf.cast(columns(tf.matmul(x, own["kernel"]), self.size), tf.float32)
        return logits + own["bias"] if self.has_bias else logits

    def chosen(self, weights, ids):
        """The columns of some ids: a function of rows [R, D] that gives float32 [R, C]."""
        own = weights[self.name]
        kernel = tf.gather(own["kernel"], ids, axis=1)
        bias = tf.gather(own["bias"], ids) if self.has_bias else None

        def logits(x):
            found = tf.cast(tf.matmul(x, kernel), tf.float32)
            return found if bias is None else found + bias

        return logits


TWINS = {output.Dense: Output}
