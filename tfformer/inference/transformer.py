"""The inference layers of the Transformer, and its forward pass."""

import tensorflow as tf

from tfformer.inference.cached import Cached
from tfformer.inference.embedding import Embedded
from tfformer.inference.masks import padding_bias, without_eos
from tfformer.layers.watcher import watched
from tfformer.search.step import State


class Transformer:
    """The inference layers of a Transformer, under the names of its layers."""

    def __init__(self, model, fusing):
        # The encoder first, so that its weights come first in an export.
        self.encoder = fusing.inference_layer(model.encoder, "encoder")
        self.decoder = fusing.inference_layer(model.decoder, "decoder")
        self.source_positions = fusing.inference_layer(model.source_positions, "source_positions")
        self.target_positions = fusing.inference_layer(model.target_positions, "target_positions")
        self.output, self.target_embedding = fusing.output_and_embedding(
            model.output_projection, model.target_embedding, "target_embedding"
        )
        self.source_embedding = fusing.inference_layer(model.source_embedding, "source_embedding")
        norm = model.target_embedding_norm, "target_embedding_norm"
        self.written = Embedded(self.target_embedding, self.target_positions, *norm, fusing)
        norm = model.source_embedding_norm, "source_embedding_norm"
        self.read = Embedded(self.source_embedding, self.source_positions, *norm, fusing)
        self.vocabulary_size, self.dtype = self.output.size, fusing.dtype
        self.sees_eos = model.sees_eos


class ReadsSource:
    """The forward pass of an encoder, with `inference_layer` and `weights`."""

    def seen(self, source_ids):
        """The source ids as the encoder reads them, see `EncoderDecoder.seen`."""
        return source_ids if self.inference_layer.sees_eos else without_eos(source_ids)

    def encoded(self, source_ids):
        """source_ids [B, S] -> the encoder's output, rows [B * S, D], the bias [B, 1, 1, S] that
        hides padding, and (B, S)."""
        batch, length = tf.unstack(tf.shape(source_ids))
        source_ids = self.seen(source_ids)
        bias = padding_bias(source_ids)  # [B, 1, 1, S]
        x = self.inference_layer.read(self.weights, source_ids)
        attend = self.inference_layer.encoder.sees(self.weights, bias)
        x = self.inference_layer.encoder(self.weights, x, batch, length, attend)
        return x, bias, (batch, length)

    def projected(self, x, bias, shape):
        """Prepare the encoder's output for the decoder: N keys and N values, [B, G, S, K] each, and
        the bias."""
        keys, values = self.inference_layer.decoder.project(self.weights, x, *shape)
        return {"keys": keys, "values": values, "bias": bias}


class Inference(ReadsSource, Cached):
    """The forward pass of a Transformer."""

    def memory(self, source_ids):
        """source_ids [B, S] -> `State.memory`: the result of `projected`, and the source ids if the
        output layer reads them."""
        memory, source_ids = self.projected(*self.encoded(source_ids)), self.seen(source_ids)
        return (
            {**memory, "source_ids": source_ids}
            if self.inference_layer.output.reads_source
            else memory
        )

    def watched(self):
        """Record the attention weights, see `tfformer.layers.watcher.watched`."""
        return watched(self.inference_layer)

    def start(self, source_ids, width):
        """The `State` of a search with W = `width` beams, before the first step."""
        return State(self.memory(source_ids), self.caches(tf.shape(source_ids)[0], width))

    def _through(self, x, batch, length, attend, memory):
        return self.inference_layer.decoder(self.weights, x, batch, length, attend, memory)
