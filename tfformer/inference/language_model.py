"""The inference layers of the language model, and its forward pass."""

import tensorflow as tf

from tfformer.inference.cached import Cached
from tfformer.inference.embedding import Embedded
from tfformer.search.step import State


class LanguageModel:
    """The inference layers of a language model, under the names of its layers."""

    def __init__(self, model, fusing):
        self.decoder = fusing.inference_layer(model.decoder, "decoder")
        self.positions = fusing.inference_layer(model.positions, "positions")
        self.output, self.embedding = fusing.output_and_embedding(
            model.output_projection, model.embedding, "embedding"
        )
        norm = model.embedding_norm, "embedding_norm"
        self.written = Embedded(self.embedding, self.positions, *norm, fusing)
        self.vocabulary_size, self.dtype = self.output.size, fusing.dtype


class LanguageModelInference(Cached):
    """The forward pass of a language model. It has no source, and a search continues a prompt,
    which may be bos alone."""

    def start(self, prompt, width):
        """The `State` of a search with W = `width` beams of B prompts, before it reads them."""
        return State({}, self.caches(tf.shape(prompt)[0], width))

    def _through(self, x, batch, length, attend, memory):
        return self.inference_layer.decoder(self.weights, x, batch, length, attend), None
