"""The base of the encoder-only models: from the ids of a text to a state of each token."""

import keras
from keras import ops

from tfformer.layers import positions
from tfformer.layers.dropout import Dropout
from tfformer.layers.embedding import TokenEmbedding
from tfformer.layers.encoder import Encoder
from tfformer.layers.masks import padding_mask
from tfformer.layers.rows import Padded


class TextEncoder(keras.Model):
    """What the encoder-only models have in common (Devlin et al. 2019, "BERT").

        states = Encoder(Dropout(E[ids] sqrt(D) + PE))

    A text is read as the source of an encoder-decoder is: its ids, then eos; padding behind. A
    subclass makes its head in `make_head`, and has `CONFIGURATION`, the class of its `config`.

    Args:
        config: the configuration.

    Raises:
        ValueError: `config` is none.
    """

    CONFIGURATION = None

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        if isinstance(config, dict):
            config = self.CONFIGURATION.from_dict(config)
        if not isinstance(config, self.CONFIGURATION):
            raise ValueError(f"config must be a {self.CONFIGURATION.__name__}, got {config!r}")
        self.config = config
        dtype = self.dtype_policy
        self.embedding = TokenEmbedding(
            config.vocabulary_size, config.d_model, dtype=dtype, name="embedding"
        )
        self.positions = positions.of_options(config, dtype=dtype, name="positions")
        self.dropout = Dropout(config.dropout, dtype=dtype)
        self.encoder = Encoder(config.num_layers, **config.stack(), dtype=dtype, name="encoder")
        self.make_head(config, dtype)
        self.build()

    def make_head(self, config, dtype):
        """Makes the layers behind the encoder."""
        raise NotImplementedError("a subclass makes the layers of its own head")

    def head(self):
        """The layers behind the encoder that have weights, by the part of the model."""
        return {"output": [self.output_projection]}

    def parts(self):
        """What the model is made of: lists of layers by name, as `Transformer.parts`."""
        return {
            "embeddings": [self.embedding, self.positions],
            "encoder": [self.encoder],
            **self.head(),
        }

    def flops(self):
        """Floating-point operations of the encoder, as `Transformer.flops`.

        Returns:
            {"token"}: of a token.
        """
        shapes = [matrix.variable.shape for matrix in self.encoder.matrices()]
        return {"token": 2 * sum(rows * columns for rows, columns in shapes)}

    def build(self, input_shape=None):
        x_shape = (None, None, self.config.d_model)
        self.embedding.build((None, None))
        for layer in (self.positions, self.encoder):
            layer.build(x_shape)
        for layers in self.head().values():
            for layer in layers:
                layer.build(x_shape)
        self.built = True

    @staticmethod
    def _ids_of(inputs):
        """The ids [B, S] of inputs that are these, or {"ids": these}."""
        if isinstance(inputs, dict):
            if set(inputs) != {"ids"}:
                raise ValueError(f'inputs must be ids [B, S] or {{"ids"}}, got {sorted(inputs)}')
            inputs = inputs["ids"]
        ids = ops.convert_to_tensor(inputs)
        if len(ids.shape) != 2:
            raise ValueError(f"ids must be [B, S], got shape {tuple(ids.shape)}")
        return ids

    def states(self, ids, training=None, rows=None):
        """ids [B, S] -> a state of each, [B, S, D]; as `rows` have them, where they are given."""
        rows = rows or Padded(padding_mask(ids))
        x = self.positions(self.embedding(rows.pack(ids)), positions=rows.positions)
        x = self.dropout(x, training=training)
        return self.encoder(x, training=training, rows=rows)

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}
