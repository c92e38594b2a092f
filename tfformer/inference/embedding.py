"""The inference layer of the token embedding; and the input of a stack, with positions and norm."""

from typing import Any

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
            x = self.output.embedded(weights, ids)
        return x * tf.cast(self.scale, self.dtype) + positions


class Embedded:
    """The input of a stack: E[ids] sqrt(D) + P, and the norm after it if there is one.

    Args:
        embedding, positions: their inference layers.
        norm: the layer `embedding_norm` of a model, or None.
        name, fusing: as for every inference layer.
    """

    def __init__(self, embedding, positions, norm, name, fusing):
        self.embedding, self.positions = embedding, positions
        self.norm = None if norm is None else fusing.inference_layer(norm, name)

    def __call__(self, weights, ids, padding=None, types=None):
        """ids [B, T] -> rows [B * T, D].

        `padding` [B] is the number of padding positions on the left of each row. `types`, rows
        [B * T, D], are added before the norm.
        """
        batch, length = tf.unstack(tf.shape(ids))
        table = self.positions.table(weights)[:length]
        if padding is None:
            places = tf.tile(table, [batch, 1])
        else:
            columns = tf.maximum(tf.range(length) - padding[:, None], 0)  # [B, T]
            places = tf.gather(table, tf.reshape(columns, [-1]))  # [B * T, D]
        if types is not None:
            places += types
        return self.at(weights, tf.reshape(ids, [-1]), places)  # ids: [B * T]

    def at(self, weights, ids, places):
        """ids [R] and the vectors of their positions, which broadcast to [R, D] -> rows [R, D]."""
        return self.normed(weights, self.embedding(weights, ids, places))

    def normed(self, weights, x):
        """Apply the norm, if there is one, to rows [R, D]."""
        return x if self.norm is None else self.norm(weights, x)


class TokenTypes:
    """E[type] of the type of each token."""

    def __init__(self, layer, name, fusing):
        self.name = name
        fusing.weights[name] = {"embeddings": tf.cast(layer.embeddings, fusing.dtype)}

    def __call__(self, weights, types):
        """int32 of any shape -> rows [R, D]."""
        return tf.gather(weights[self.name]["embeddings"], tf.reshape(types, [-1]))


INFERENCE_LAYERS: dict[type, Any] = {
    embedding.TokenEmbedding: TokenEmbedding,
    embedding.TokenTypes: TokenTypes,
}
