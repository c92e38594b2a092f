"""The recurrent encoder-decoder with attention, a baseline for the Transformer."""

import keras
from keras import ops

from tfformer.config import RecurrentConfig
from tfformer.layers.dropout import Dropout
from tfformer.layers.embedding import TokenEmbedding
from tfformer.layers.masks import padding_mask
from tfformer.layers.output import Dense
from tfformer.layers.recurrent import RecurrentDecoder, RecurrentEncoder
from tfformer.models.configured import ConfiguredModel
from tfformer.models.encoder_decoder import EncoderDecoder


@keras.saving.register_keras_serializable("tfformer")
class Recurrent(ConfiguredModel):
    """The encoder-decoder of Bahdanau et al. 2015, as a replacement for a `Transformer`. It has the
    same inputs, logits, loss and searches. It serves as a baseline and cannot be exported.

    Args:
        config: a `RecurrentConfig`.

    Call arguments:
        inputs: {"source_ids": integers [B, S], "target_ids": integers [B, T]}, as for a
            `Transformer`.

    Returns:
        logits [B, T, V]: [:, t] scores the token that follows target_ids[:, :t + 1].

    Raises:
        ValueError: `config` is of another class.

    Example:
        >>> model = Recurrent(RecurrentConfig.preset("test", 17))
        >>> source_ids, target_ids = np.array([[5, 4, 3], [7, 3, 0]]), np.array([[2, 9], [2, 0]])
        >>> tuple(model({"source_ids": source_ids, "target_ids": target_ids}).shape)
        (2, 2, 17)
    """

    configuration = RecurrentConfig
    # As in a `Transformer`: the encoder reads the eos at the end of a source.
    sees_eos = True

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        sizes = config.d_model, config.dropout
        self.target_embedding = TokenEmbedding(
            config.target_vocabulary_size, config.d_model, dtype=dtype, name="target_embedding"
        )
        self.source_embedding = self.target_embedding
        if not config.shares_embeddings:
            self.source_embedding = TokenEmbedding(
                config.source_vocabulary_size, config.d_model, dtype=dtype, name="source_embedding"
            )
        self.source_dropout = Dropout(config.dropout, dtype=dtype)
        self.target_dropout = Dropout(config.dropout, dtype=dtype)
        self.output_dropout = Dropout(config.dropout, dtype=dtype)
        self.encoder = RecurrentEncoder(
            config.num_encoder_layers, *sizes, dtype=dtype, name="encoder"
        )
        self.decoder = RecurrentDecoder(
            config.num_decoder_layers,
            config.d_model,
            config.attention,
            dtype=dtype,
            name="decoder",
        )
        self.output_projection = Dense(
            config.target_vocabulary_size,
            tied=config.ties_output,
            dtype=dtype,
            name="output_projection",
        )
        self.build()

    def parts(self):
        """The parts of the model, as `Transformer.parts`."""
        embeddings = [self.source_embedding, self.target_embedding]
        return {
            "embeddings": embeddings[int(embeddings[0] is embeddings[1]) :],
            "encoder": [self.encoder],
            "decoder": [self.decoder],
            "output": [self.output_projection],
        }

    # Not counted: attention, 6 D for each pair of positions, and the first states, once for each
    # sentence.
    flops = EncoderDecoder.flops

    def build(self, input_shape=None):
        x_shape = (None, None, self.config.d_model)
        for layer in self.parts()["embeddings"]:
            layer.build((None, None))
        self.encoder.build(x_shape)
        self.decoder.build(x_shape)
        self.output_projection.build(x_shape)
        self.built = True

    def seen(self, source_ids):
        """The source ids as the encoder reads them, without a change."""
        return source_ids

    def call(self, inputs, training=None):
        return self.with_attention(inputs, training)[0]

    def with_attention(self, inputs, training=None):
        """The output of a call, and a list with the attention weights, float32 [B, 1, T, S]. It is
        a list because `Transformer.with_attention` has one tensor for each layer."""
        memory = self.encode(inputs["source_ids"], training)
        return self.decode(inputs["target_ids"], memory, training)

    def encode(self, source_ids, training=None):
        """source_ids [B, S] -> the memory of the decoder, see `RecurrentDecoder.read`."""
        source_ids = ops.convert_to_tensor(source_ids)
        mask = padding_mask(source_ids)
        x = self.source_dropout(self.source_embedding(source_ids), training=training)
        return self.decoder.read(self.encoder(x, mask=mask, training=training), mask)

    def decode(self, target_ids, memory, training=None):
        """target_ids [B, T] -> logits [B, T, V], and the attention weights of `with_attention`."""
        x = self.target_embedding(ops.convert_to_tensor(target_ids))
        x = self.target_dropout(x, training=training)
        x, attention = self.decoder(x, memory)
        return self.logits(self.output_dropout(x, training=training)), [attention[:, None]]

    def logits(self, x):
        """The output layer: [..., D] -> [..., V]."""
        tied = self.output_projection.tied
        return self.output_projection(x, embedding=self.target_embedding if tied else None)

    def cross_attention_weights(self, inputs):
        """The attention weights of each position, float32 [1, B, 1, T, S], for plots."""
        return ops.stack(self.with_attention(inputs)[1])
