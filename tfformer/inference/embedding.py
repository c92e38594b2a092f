"""The inference layer of the token embedding."""

import tensorflow as tf

from tfformer.layers import embedding


class TokenEmbedding:
    """E[ids] sqrt(D). If the output layer shares the matrix, E[ids] are its columns.

    Args:
        layer, name, fusing: as for every inference layer.
        output: the inference layer of the output that shares the matrix, transposed. Default: none.
    """

    def __init__(self, layer, name, fusing, output=None):
        self.name, self.output = name, output
        self.scale, self.dtype = layer.d_model**0.5, fusing.dtype
        if output is None:
            fusing.weights[name] = {"embeddings": tf.cast(layer.embeddings, fusing.dtype)}

    def __call__(self, weights, ids, positions):
        """ids [R] and positions that broadcast to [R, D] -> rows [R, D]."""
        if self.output is None:
            x = tf.gather(weights[self.name]["embeddings"], ids)
        else:
            x = tf.gather(weights[self.output.name]["kernel"], ids, axis=1)
            x = tf.transpose(x)  # [R, D]
        return x * tf.cast(self.scale, self.dtype) + positions


INFERENCE_LAYERS = {embedding.TokenEmbedding: TokenEmbedding}
