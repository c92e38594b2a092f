"""The base class of the models with an encoder and a decoder."""

from typing import Any

import keras
from keras import ops

from tfformer.annotations import Shape, Tensor
from tfformer.config import EOS, PAD, TwoSidedOptions
from tfformer.layers import positions
from tfformer.layers.decoder import Decoder
from tfformer.layers.dropout import Dropout
from tfformer.layers.embedding import TokenEmbedding
from tfformer.layers.encoder import Encoder
from tfformer.layers.masks import padding_mask
from tfformer.layers.norm import normed, of_embeddings
from tfformer.layers.output import Dense
from tfformer.layers.packing import Padded, Rows
from tfformer.models.configured import ConfiguredModel


class EncoderDecoder(ConfiguredModel):
    """Two embeddings (or one shared one), an encoder, a decoder and an output layer. A subclass
    defines the call, and its `__init__` ends with `build`.

    Args:
        config: an instance of the class `configuration`, or its fields by name.

    Raises:
        ValueError: `config` is of another class.
    """

    config: TwoSidedOptions

    def __init__(self, config: TwoSidedOptions | dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        stack = {**config.stack(), "dtype": dtype}
        self.target_embedding = TokenEmbedding(
            config.target_vocabulary_size, config.d_model, dtype=dtype, name="target_embedding"
        )
        if config.shares_embeddings:
            self.source_embedding = self.target_embedding
        else:
            self.source_embedding = TokenEmbedding(
                config.source_vocabulary_size, config.d_model, dtype=dtype, name="source_embedding"
            )
        self.source_positions = positions.of_options(config, dtype=dtype, name="source_positions")
        self.target_positions = positions.of_options(config, dtype=dtype, name="target_positions")
        self.source_embedding_norm = of_embeddings(
            config, dtype=dtype, name="source_embedding_norm"
        )
        self.target_embedding_norm = of_embeddings(
            config, dtype=dtype, name="target_embedding_norm"
        )
        self.source_dropout = Dropout(config.dropout, dtype=dtype)
        self.target_dropout = Dropout(config.dropout, dtype=dtype)
        self.encoder = Encoder(config.num_encoder_layers, **stack, name="encoder")
        lender = self.encoder if config.share_halves else None
        self.decoder = Decoder(config.num_decoder_layers, **stack, lender=lender, name="decoder")
        self.output_projection = self.output_layer(
            config.target_vocabulary_size,
            **self.output_options,
            dtype=dtype,
            name="output_projection",
        )

    @property
    def output_layer(self) -> type[Dense]:
        """The class of the output layer."""
        return Dense

    @property
    def sees_eos(self) -> bool:
        """Whether the encoder reads the eos at the end of a source."""
        return True

    @property
    def output_options(self) -> dict[str, Any]:
        """The arguments of the output layer except the size, by name."""
        return {"tied": self.config.ties_output}

    def parts(self) -> dict[str, list[keras.layers.Layer]]:
        """The parts of the model: lists of layers by name. Training can freeze some of them.

        A layer that source and target share is listed once.
        """
        embeddings = [self.target_embedding, self.source_positions, self.target_positions]
        if self.source_embedding is not self.target_embedding:
            embeddings.insert(0, self.source_embedding)
        norms = self.source_embedding_norm, self.target_embedding_norm
        embeddings += [norm for norm in norms if norm is not None]
        return {
            "embeddings": embeddings,
            "encoder": [self.encoder],
            "decoder": [self.decoder],
            "output": [self.output_projection],
        }

    def flops(self) -> dict[str, int]:
        """Floating-point operations of the forward pass: two for each multiplication and addition.

        This counts only the operations whose number does not grow with the length of a sentence.
        The products of attention's scores and values need 4 D more for each pair of positions and
        each attention.

        Returns:
            {"source_token", "target_token"}: the operations for one token of the source, and for
            one token of the target in each beam.
        """
        output = self.config.d_model * self.config.target_vocabulary_size
        sizes = {"source_token": 0, "target_token": 2 * output}
        for stack, token in ((self.encoder, "source_token"), (self.decoder, "target_token")):
            for matrix in stack.matrices():
                rows, columns = matrix.shape
                sizes["source_token" if matrix.of_memory else token] += 2 * rows * columns
        return sizes

    def build(self, input_shape: Shape | None = None) -> None:
        x_shape = (None, None, self.config.d_model)
        for layer in self.parts()["embeddings"]:
            layer.build((None, None) if isinstance(layer, TokenEmbedding) else x_shape)
        self.encoder.build(x_shape)
        self.decoder.build(x_shape, x_shape)
        self.output_projection.build(x_shape)
        self.built = True

    def seen(self, source_ids: Tensor) -> Tensor:
        """The source ids, of any shape, as the encoder reads them. If it ignores eos, each eos
        becomes padding. Compute the padding mask of a source from this result."""
        if self.sees_eos:
            return source_ids
        return ops.where(ops.equal(source_ids, EOS), PAD, source_ids)

    def encode(
        self, source_ids: Tensor, training: bool | None = None, rows: Rows | None = None
    ) -> Tensor:
        """source_ids [B, S] -> memory [B, S, D]; [N, D] if the rows are `Packed`."""
        source_ids = self.seen(source_ids)
        rows = rows or Padded(padding_mask(source_ids))
        x = self.source_positions(
            self.source_embedding(rows.pack(source_ids)), positions=rows.positions
        )
        x = normed(self.source_embedding_norm, x, rows, training)
        x = self.source_dropout(x, training=training)
        return self.encoder(x, training=training, rows=rows)

    def _target(self, ids, rows, training):
        """The input of the decoder: ids [B, T] -> [B, T, D], or [N, D] for packed rows."""
        return self._numbered(self.target_embedding(rows.pack(ids)), rows, training)

    def _numbered(self, x, rows, training):
        """Add the positions of the target to x [B, T, D], or [N, D]; apply norm and dropout."""
        x = self.target_positions(x, positions=rows.positions)
        x = normed(self.target_embedding_norm, x, rows, training)
        return self.target_dropout(x, training=training)
