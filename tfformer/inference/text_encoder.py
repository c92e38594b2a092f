"""The inference layers of the encoder-only models, and their forward passes."""

import tensorflow as tf

from tfformer.config import BOS
from tfformer.inference.dense import Dense
from tfformer.inference.embedding import Embedded
from tfformer.inference.masks import MASKED, attention_bias, padding_bias, padding_mask
from tfformer.layers.overlapping_windows import Recurrence
from tfformer.models.embedder import MINIMUM
from tfformer.models.span_reader import in_text, read_places, types_of, with_separators

POOLERS = {"tanh": tf.tanh, "relu": tf.nn.relu}


class TextEncoder:
    """The inference layers that all encoder-only models have, under the names of the layers."""

    def __init__(self, model, fusing):
        self.encoder = fusing.inference_layer(model.encoder, "encoder")
        self.positions = fusing.inference_layer(model.positions, "positions")
        self.added = model.config.added
        self.embedding = self.of_embedding(model, fusing)
        norm = model.embedding_norm, "embedding_norm"
        self.embedded = Embedded(self.embedding, self.positions, *norm, fusing)

    def of_embedding(self, model, fusing):
        """The inference layer of the embedding, made after all others except the head."""
        return fusing.inference_layer(model.embedding, "embedding")

    def read(self, ids):
        """The ids that the encoder reads, from ids [B, S]: the same, or with a bos in front."""
        return tf.pad(ids, [[0, 0], [1, 0]], constant_values=BOS) if self.added else ids

    def types(self, weights, ids):
        """What is added to the embedded ids for the kind of each token: None, or rows."""

    def token_states(self, weights, ids):
        """ids [B, S] -> the states of these tokens, rows [B * S, D]."""
        x = self.states(weights, self.read(ids))
        if not self.added:
            return x
        batch, length = tf.unstack(tf.shape(ids))
        x = tf.reshape(x, [batch, self.added + length, x.shape[1]])  # [B, A + S, D]
        return tf.reshape(x[:, self.added :], [batch * length, x.shape[2]])

    def states(self, weights, ids):
        """ids [B, S] -> rows [B * S, D]."""
        batch, length = tf.unstack(tf.shape(ids))
        x = self.embedded(weights, ids, types=self.types(weights, ids))
        return self.encoder(
            weights, x, batch, length, self.encoder.sees(weights, padding_bias(ids))
        )

    def vectors(self, weights, ids):
        """ids [B, S] -> a vector of each row, [B, D], by the `pooling` of a subclass."""
        ids = self.read(ids)
        return self.pooling(weights, self.states(weights, ids), padding_mask(ids))

    def logits(self, weights, ids):
        """ids [B, S] -> the logits at each position, float32 [B, S, C]."""
        logits = self.output(weights, self.token_states(weights, ids))
        shape = tf.concat([tf.shape(ids), [self.output.size]], axis=0)
        return tf.reshape(logits, shape)  # [B, S, C]


class Classifier(TextEncoder):
    """The inference layers of a classifier."""

    def __init__(self, model, fusing):
        super().__init__(model, fusing)
        self.pooling = fusing.inference_layer(model.pooling, "pooling")
        self.output = fusing.inference_layer(model.output_projection, "output")
        self.pooler = None
        if model.pooler is not None:
            self.pooler = Dense([model.pooler], "pooler", fusing)
            self.activation = POOLERS[model.config.pooler]
        self.several, self.kind, self.pieces = model.config.multi_label, "mean", None
        if model.pieces is not None:
            self.pieces = fusing.inference_layer(model.pieces, "pieces")
            self.mean_of_pieces = fusing.inference_layer(model.mean_of_pieces, "mean_of_pieces")
        if model.combined is not None:
            self.kind = "lstm" if isinstance(model.combined, Recurrence) else "transformer"
            self.combined = fusing.inference_layer(model.combined, "combined")
        if self.kind == "transformer":
            self.piece_positions = fusing.inference_layer(model.piece_positions, "piece_positions")

    def vectors(self, weights, ids):
        """ids [B, S] -> [B, D]."""
        if self.pieces is None:
            return super().vectors(weights, ids)
        ids, real = self.pieces(weights, ids)
        batch, count, length = tf.unstack(tf.shape(ids))
        rows = tf.reshape(ids, [batch * count, length])  # [B * P, L]
        x = super().vectors(weights, rows)  # [B * P, D]
        if self.kind == "lstm":
            x = tf.reshape(x, [batch, count, x.shape[1]])  # [B, P, D]
            return self.combined(weights, x, real)
        if self.kind == "transformer":
            x += tf.tile(self.piece_positions.table(weights)[:count], [batch, 1])
            bias = attention_bias(real)[:, None, None]  # [B, 1, 1, P]
            x = self.combined(weights, x, batch, count, self.combined.sees(weights, bias))
        return self.mean_of_pieces(weights, x, real)

    def logits(self, weights, ids):
        """ids [B, S] -> float32 [B, C], or [B, C, 2]."""
        vectors = self.vectors(weights, ids)
        if self.pooler is not None:
            vectors = self.activation(self.pooler(weights, vectors))
        logits = self.output(weights, vectors)
        return tf.stack([tf.zeros_like(logits), logits], axis=-1) if self.several else logits


class MaskedLanguageModel(TextEncoder):
    """The inference layers of a masked language model."""

    def __init__(self, model, fusing):
        super().__init__(model, fusing)
        self.pooling = fusing.inference_layer(model.pooling, "pooling")

        self.transform = None
        if model.transform is not None:
            self.transform = fusing.inference_layer(model.transform, "transform")

    def token_states(self, weights, ids):
        x = super().token_states(weights, ids)
        return x if self.transform is None else self.transform(weights, x)

    def of_embedding(self, model, fusing):
        self.output, embedding = fusing.output_and_embedding(
            model.output_projection, model.embedding, "embedding"
        )
        return embedding


class Tagger(TextEncoder):
    """The inference layers of a tagger."""

    def __init__(self, model, fusing):
        super().__init__(model, fusing)
        self.output = fusing.inference_layer(model.output_projection, "output")


class SpanReader(TextEncoder):
    """The inference layers of a span reader."""

    def __init__(self, model, fusing):
        super().__init__(model, fusing)
        self.output = fusing.inference_layer(model.output_projection, "output")
        self.known, self.token_types = (model.config.add_bos, model.config.separators), None
        if model.token_types is not None:
            self.token_types = fusing.inference_layer(model.token_types, "token_types")

    def read(self, ids):
        return with_separators(ids, *self.known)

    def types(self, weights, ids):
        return None if self.token_types is None else self.token_types(weights, types_of(ids))

    def token_states(self, weights, ids):
        x = self.states(weights, self.read(ids))
        if not self.added:
            return x
        batch, length = tf.unstack(tf.shape(ids))
        x = tf.reshape(x, [batch, self.added + length, x.shape[1]])  # [B, A + S, D]
        x = tf.gather(x, read_places(ids, *self.known), batch_dims=1)  # [B, S, D]
        return tf.reshape(x, [batch * length, x.shape[2]])

    def logits(self, weights, ids):
        """ids [B, S] -> float32 [B, 2, S]."""
        logits = tf.transpose(super().logits(weights, ids), [0, 2, 1])  # [B, 2, S]
        return tf.where(in_text(ids)[:, None], logits, MASKED)


class Embedder(TextEncoder):
    """The inference layers of an embedder."""

    def __init__(self, model, fusing):
        super().__init__(model, fusing)
        self.pooling = fusing.inference_layer(model.pooling, "pooling")
        self.normalizes = model.config.normalize

    def logits(self, weights, ids):
        """The vectors, float32 [B, D]."""
        return tf.cast(self.vectors(weights, ids), tf.float32)

    def vectors(self, weights, ids):
        """ids [B, S] -> [B, D]."""
        vectors = super().vectors(weights, ids)
        if not self.normalizes:
            return vectors
        vectors = tf.cast(vectors, tf.float32)
        return vectors / tf.maximum(tf.norm(vectors, axis=-1, keepdims=True), MINIMUM)


class TextEncoderInference:
    """The forward pass of an encoder-only model. A call returns logits, as the model does.

    Args:
        inference_layer, weights: from `fuse`; the weights may be tensors or variables.
    """

    def __init__(self, inference_layer, weights):
        self.inference_layer = inference_layer
        self.weights = tf.nest.map_structure(tf.convert_to_tensor, weights)

    def __call__(self, ids):
        """ids [B, S] -> the logits of the model, float32."""
        return self.inference_layer.logits(self.weights, ids)

    def embed(self, ids):
        """ids [B, S] -> the vectors of the texts, float32 [B, D]."""
        return tf.cast(self.inference_layer.vectors(self.weights, ids), tf.float32)
