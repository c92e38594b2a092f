"""The recurrent encoder-decoder with attention, to compare the Transformer with."""

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
    """The encoder-decoder of Bahdanau et al. 2015, in the place of a `Transformer`: the same
    inputs, logits, loss and searches. It is here to be compared, and is not exported.

    Args:
        config: a `RecurrentConfig`.

    Call arguments:
        inputs: {"source_ids": integers [B, S], "target_ids": integers [B, T]}, as a `Transformer`
            takes them.

    Returns:
        logits [B, T, V]: [:, t] scores the token that follows target_ids[:, :t + 1].

    Raises:
        ValueError: `config` is none.

    Example:
        >>> model = Recurrent(RecurrentConfig.preset("test", 17))
        >>> source_ids, target_ids = np.array([[5, 4, 3], [7, 3, 0]]), np.array([[2, 9], [2, 0]])
        >>> tuple(model({"source_ids": source_ids, "target_ids": target_ids}).shape)
        (2, 2, 17)
    """

    configuration = RecurrentConfig
    # As a `Transformer`'s: an encoder sees the eos that ends a source.
    sees_eos = True

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        sizes = config.d_model, config.dropout
        self.target_embedding = TokenEmbedding(
            config.target_vocabulary_size, config.d_model, dtype=dtype, name="target_embedding"
        )
        self.source_embedding = self.target_embedding
        if config.tie_embeddings != "all":
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
            tied=config.tie_embeddings != "none",
            dtype=dtype,
            name="output_projection",
        )
        self.build()

    def parts(self):
        """What the model is made of, as `Transformer.parts`."""
        embeddings = [self.source_embedding, self.target_embedding]
        return {
            "embeddings": embeddings[int(embeddings[0] is embeddings[1]) :],
            "encoder": [self.encoder],
            "decoder": [self.decoder],
            "output": [self.output_projection],
        }

    # Those of attention, 6 D for each pair of positions, come on top, and the first states, once a
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
        """The source ids as the encoder sees them: all of them."""
        return source_ids

    def call(self, inputs, training=None):
        return self.with_attention(inputs, training)[0]

    def with_attention(self, inputs, training=None):
        """What a call gives, and what each position attends to, float32 [B, 1, T, S], in a list, as
        `Transformer.with_attention` has it for each layer."""
        memory = self.encode(inputs["source_ids"], training)
        return self.decode(inputs["target_ids"], memory, training)

    def encode(self, source_ids, training=None):
        """source_ids [B, S] -> what the decoder needs of them, see `RecurrentDecoder.read`."""
        source_ids = ops.convert_to_tensor(source_ids)
        mask = padding_mask(source_ids)
        x = self.source_dropout(self.source_embedding(source_ids), training=training)
        return self.decoder.read(self.encoder(x, mask=mask, training=training), mask)

    def decode(self, target_ids, memory, training=None):
        """target_ids [B, T] -> logits [B, T, V], and the attention, see `with_attention`."""
        x = self.target_embedding(ops.convert_to_tensor(target_ids))
        x = self.target_dropout(x, training=training)
        x, attention = self.decoder(x, memory)
        return self.logits(self.output_dropout(x, training=training)), [attention[:, None]]

    def logits(self, x):
        """The output layer: [..., D] -> [..., V]."""
        tied = self.output_projection.tied
        return self.output_projection(x, embedding=self.target_embedding if tied else None)

    def cross_attention_weights(self, inputs):
        """What each position attends to, float32 [1, B, 1, T, S], for pictures."""
        return ops.stack(self.with_attention(inputs)[1])
