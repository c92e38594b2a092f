"""The base class of the models with one stack: from the ids of a text to a state of each token."""

import abc
from typing import Any

import keras

from tfformer.annotations import Shape, Tensor
from tfformer.config import OneStackOptions
from tfformer.layers import positions
from tfformer.layers.dropout import Dropout
from tfformer.layers.embedding import TokenEmbedding
from tfformer.layers.encoder import Encoder
from tfformer.layers.masks import padding_mask
from tfformer.layers.norm import normed, of_embeddings
from tfformer.layers.packing import Padded, Rows
from tfformer.models.configured import ConfiguredModel


class OneStack(ConfiguredModel, abc.ABC):
    """A model with one stack, an encoder or a decoder.

        states = Stack(Dropout(E[ids] sqrt(D) + PE))

    With `embedding_norm`, a norm follows the sum.

    The configuration's `HALF` names the stack: `encoder` or `decoder`. A decoder without
    cross-attention has the layers of an encoder, and is causal.

    Args:
        config: the configuration.

    Raises:
        ValueError: `config` is of another class.
    """

    config: OneStackOptions

    def __init__(self, config: OneStackOptions | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.embedding = TokenEmbedding(
            config.vocabulary_size, config.d_model, dtype=dtype, name="embedding"
        )
        self.positions = positions.of_options(config, dtype=dtype, name="positions")
        self.embedding_norm = of_embeddings(config, dtype=dtype, name="embedding_norm")
        self.dropout = Dropout(config.dropout, dtype=dtype)
        stack = Encoder(config.num_layers, **config.stack(), dtype=dtype, name=config.HALF)
        setattr(self, config.HALF, stack)
        self.make_head(config, dtype)
        self.build()

    @abc.abstractmethod
    def make_head(self, config: Any, dtype: keras.DTypePolicy) -> None:
        """Make the layers after the stack."""

    @property
    def stack(self) -> Encoder:
        """The stack: the `Encoder` stored as `encoder` or `decoder`."""
        return getattr(self, self.config.HALF)

    def head(self) -> dict[str, list[keras.layers.Layer]]:
        """The layers after the stack that have weights, grouped by part of the model."""
        return {"output": [self.output_projection]}

    def input_specs(self) -> keras.InputSpec:
        """The input of a call as a `keras.InputSpec`: ids."""
        return keras.InputSpec(shape=(None, None), dtype="int32")

    def parts(self) -> dict[str, list[keras.layers.Layer]]:
        """The parts of the model: lists of layers by name, as `Transformer.parts`."""
        return {
            "embeddings": [self.embedding, *self._after_embedding()],
            self.config.HALF: [self.stack],
            **self.head(),
        }

    def _after_embedding(self):
        """The positions, and the norm if there is one."""
        norm = self.embedding_norm
        return [self.positions] if norm is None else [self.positions, norm]

    def flops(self) -> dict[str, int]:
        """Floating-point operations of the stack, as `Transformer.flops`.

        Returns:
            {"token"}: the operations for one token.
        """
        shapes = [matrix.shape for matrix in self.stack.matrices()]
        return {"token": 2 * sum(rows * columns for rows, columns in shapes)}

    def build(self, input_shape: Shape | None = None) -> None:
        x_shape = (None, None, self.config.d_model)
        self.embedding.build((None, None))
        for layer in (*self._after_embedding(), self.stack):
            layer.build(x_shape)
        for layers in self.head().values():
            for layer in layers:
                layer.build(x_shape)
        self.built = True

    def states(self, ids: Tensor, training: bool | None = None, rows: Rows | None = None) -> Tensor:
        """ids [B, S] -> a state of each token, [B, S, D], or in the layout of `rows`."""
        rows = rows or Padded(padding_mask(ids))
        x = self.positions(self.embedding(rows.pack(ids)), positions=rows.positions)
        x = normed(self.embedding_norm, self.typed(x, ids, rows), rows, training)
        x = self.dropout(x, training=training)
        return self.stack(x, causal=self.config.HALF == "decoder", training=training, rows=rows)

    def typed(self, x: Tensor, ids: Tensor, rows: Rows) -> Tensor:
        """Add what depends on the kind of each token to the embedded tokens: here, nothing."""
        return x

    def tied_logits(self, x: Tensor) -> Tensor:
        """The output layer of a model with one column for each id: [..., D] -> [..., V]."""
        tied = self.output_projection.tied
        return self.output_projection(x, embedding=self.embedding if tied else None)
