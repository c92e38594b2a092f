"""The base of the models of one stack: from the ids of a text to a state of each token."""

import abc

import keras

from tfformer.layers import positions
from tfformer.layers.dropout import Dropout
from tfformer.layers.embedding import TokenEmbedding
from tfformer.layers.encoder import Encoder
from tfformer.layers.masks import padding_mask
from tfformer.layers.rows import Padded
from tfformer.models.configured import ConfiguredModel


class OneStack(ConfiguredModel, abc.ABC):
    """What the models of one stack have in common.

        states = Stack(Dropout(E[ids] sqrt(D) + PE))

    The stack is `encoder` or `decoder`, as the configuration's `HALF` says: a decoder that attends
    to nothing but itself has the layers of an encoder, and is causal.

    Args:
        config: the configuration.

    Raises:
        ValueError: `config` is none.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.embedding = TokenEmbedding(
            config.vocabulary_size, config.d_model, dtype=dtype, name="embedding"
        )
        self.positions = positions.of_options(config, dtype=dtype, name="positions")
        self.dropout = Dropout(config.dropout, dtype=dtype)
        stack = Encoder(config.num_layers, **config.stack(), dtype=dtype, name=config.HALF)
        setattr(self, config.HALF, stack)
        self.make_head(config, dtype)
        self.build()

    @abc.abstractmethod
    def make_head(self, config, dtype):
        """Makes the layers behind the stack."""

    @property
    def stack(self):
        """The `Encoder` that is `encoder` or `decoder`."""
        return getattr(self, self.config.HALF)

    def head(self):
        """The layers behind the stack that have weights, by the part of the model."""
        return {"output": [self.output_projection]}

    def input_specs(self):
        """What a call takes, as a `keras.InputSpec`: ids."""
        return keras.InputSpec(shape=(None, None), dtype="int32")

    def parts(self):
        """What the model is made of: lists of layers by name, as `Transformer.parts`."""
        return {
            "embeddings": [self.embedding, self.positions],
            self.config.HALF: [self.stack],
            **self.head(),
        }

    def flops(self):
        """Floating-point operations of the stack, as `Transformer.flops`.

        Returns:
            {"token"}: of a token.
        """
        shapes = [matrix.shape for matrix in self.stack.matrices()]
        return {"token": 2 * sum(rows * columns for rows, columns in shapes)}

    def build(self, input_shape=None):
        x_shape = (None, None, self.config.d_model)
        self.embedding.build((None, None))
        for layer in (self.positions, self.stack):
            layer.build(x_shape)
        for layers in self.head().values():
            for layer in layers:
                layer.build(x_shape)
        self.built = True

    def states(self, ids, training=None, rows=None):
        """ids [B, S] -> a state of each, [B, S, D]; as `rows` have them, where they are given."""
        rows = rows or Padded(padding_mask(ids))
        x = self.positions(self.embedding(rows.pack(ids)), positions=rows.positions)
        x = self.dropout(x, training=training)
        return self.stack(x, causal=self.config.HALF == "decoder", training=training, rows=rows)

    def tied_logits(self, x):
        """The output layer of a model that has an id for each column: [..., D] -> [..., V]."""
        tied = self.output_projection.tied
        return self.output_projection(x, embedding=self.embedding if tied else None)
