"""The twins of the encoder-only models, and their forward passes over the weights of a request."""

import tensorflow as tf

from tfformer.inference.cached import embedded
from tfformer.inference.masks import padding_bias, padding_mask


class TextEncoder:
    """The twins of what all encoder-only models have, by the names of the layers."""

    def __init__(self, model, fusing):
        self.encoder = fusing.twin(model.encoder, "encoder")
        self.positions = fusing.twin(model.positions, "positions")
        self.embedding = self.of_embedding(model, fusing)

    def of_embedding(self, model, fusing):
        """The twin of the embedding, made behind all others but the head."""
        return fusing.twin(model.embedding, "embedding")

    def states(self, weights, ids):
        """ids [B, S] -> rows [B * S, D]."""
        batch, length = tf.unstack(tf.shape(ids))
        x = embedded(ids, self.embedding, self.positions, weights)
        return self.encoder(weights, x, batch, length, self.encoder.sees(padding_bias(ids)))


class Classifier(TextEncoder):
    """The twins of a classifier."""

    def __init__(self, model, fusing):
        super().__init__(model, fusing)
        self.pooling = fusing.twin(model.pooling, "pooling")
        self.output = fusing.twin(model.output_projection, "output")

    def vectors(self, weights, ids):
        """ids [B, S] -> [B, D]."""
        ids = self.pooling.read(ids)
        return self.pooling(weights, self.states(weights, ids), padding_mask(ids))

    def logits(self, weights, ids):
        """ids [B, S] -> float32 [B, C]."""
        return self.output(weights, self.vectors(weights, ids))


class TextEncoderInference:
    """The forward pass of an encoder-only model: called, it gives logits as the model does.

    Args:
        twin, weights: from `fuse`; the weights may be tensors or variables.
    """

    def __init__(self, twin, weights):
        self.twin = twin
        self.weights = tf.nest.map_structure(tf.convert_to_tensor, weights)

    def __call__(self, ids):
        """ids [B, S] -> the logits of the model, float32."""
        return self.twin.logits(self.weights, ids)

    def embed(self, ids):
        """ids [B, S] -> the vectors of the texts, float32 [B, D]."""
        return tf.cast(self.twin.vectors(self.weights, ids), tf.float32)
