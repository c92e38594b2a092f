"""The inference layers of positions: tables [L, D], whose rows are added to embeddings."""

import tensorflow as tf

from tfformer.layers import positions


class Positions:
    """A table in the weights."""

    def table(self, weights):
        return weights[self.name]["table"]


class Sinusoids(Positions):
    """PE of the first L positions; source and target share one table."""

    def __init__(self, layer, name, fusing):
        self.name = f"sinusoids_{layer.d_model}"
        if self.name not in fusing.weights:
            table = positions.sinusoids(tf.range(fusing.num_positions), layer.d_model)
            fusing.weights[self.name] = {"table": tf.cast(table, fusing.dtype)}


class LearnedPositions(Positions):
    """The learned vectors; all positions after the last one use the last vector."""

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


INFERENCE_LAYERS = {
    positions.NoPositions: NoPositions,
    positions.LearnedPositionalEmbedding: LearnedPositions,
    positions.SinusoidalPositionalEncoding: Sinusoids,
}
