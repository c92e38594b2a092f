"""The twins of positions: each is a table, [L, D], whose rows are added to embeddings."""

import tensorflow as tf

from tfformer.layers import positions


class Positions:
    """A table in the weights."""

    def table(self, weights):
        return weights[self.name]["table"]


class Sinusoids(Positions):
    """PE of the first L positions; the two sides of a model share one table."""

    def __init__(self, layer, name, fusing):
        self.name = f"sinusoids_{layer.d_model}"
        if self.name not in fusing.weights:
            table = positions.sinusoids(tf.range(fusing.num_positions), layer.d_model)
            fusing.weights[self.name] = {"table": tf.cast(table, fusing.dtype)}


class LearnedPositions(Positions):
    """The learned vectors; after the last of them, that one serves for all."""

    def __init__(self, layer, name, fusing):
        self.name = name
        last = layer.max_positions - 1
        table = tf.gather(layer.embeddings, tf.minimum(tf.range(fusing.num_positions), last))
        fusing.weights[name] = {"table": tf.cast(table, fusing.dtype)}


class NoPositions(Positions):
    """A table of zeros."""

    def __init__(self, layer, name, fusing):
        self.name = "no_positions"
        fusing.weights[self.name] = {
            "table": tf.zeros([fusing.num_positions, layer.d_model], fusing.dtype)
        }


TWINS = {
    positions.NoPositions: NoPositions,
    positions.LearnedPositionalEmbedding: LearnedPositions,
    positions.SinusoidalPositionalEncoding: Sinusoids,
}
