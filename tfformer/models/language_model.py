"""The language model: ids in, logits of the next token out; a decoder without an encoder."""

import keras
from keras import ops

from tfformer.config import LanguageModelConfig
from tfformer.layers import positions
from tfformer.layers.dropout import Dropout
from tfformer.layers.embedding import TokenEmbedding
from tfformer.layers.encoder import Encoder
from tfformer.layers.masks import padding_mask
from tfformer.layers.output import Dense
from tfformer.layers.rows import Joined, Padded


@keras.saving.register_keras_serializable("tfformer")
class LanguageModel(keras.Model):
    """P(w_t | w_1 ... w_(t - 1)), by the decoder of "Attention Is All You Need" without an encoder
    (Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", section 4.2.3; Radford
    et al. 2018).

        logits = W_out CausalEncoder(Dropout(E[ids] sqrt(D) + PE))

    Args:
        config: a `LanguageModelConfig`.

    Call arguments:
        inputs: integers [B, T], each row beginning with bos (2); 0 is padding after them. Or
            {"ids": integers [B, T], "texts": integers [B, T]}, where a row has several texts one
            behind the other: see `tfformer.layers.rows.Joined`.

    Returns:
        logits [B, T, V]: [:, t] scores the token that follows ids[:, :t + 1]; of joined texts, of
        each place, [B * T, V].

    Raises:
        ValueError: `config` is none; or other inputs are given, or, with learned positions, longer
            ones than `max_positions`.

    It trains with a plain `compile` and `fit` on elements (ids, labels [B, T]), the labels being
    the texts without bos, with eos. `tfformer.generate` writes with it.

    Example:
        >>> model = LanguageModel(LanguageModelConfig.preset("test", vocabulary_size=17))
        >>> tuple(model(np.array([[2, 9, 8, 6, 5], [2, 4, 7, 0, 0]])).shape)
        (2, 5, 17)
        >>> found = generate(model, prompt=[[2, 9, 8], [2, 4]], max_length=7, search="greedy")
        >>> tuple(found.token_ids.shape)[:2]
        (2, 1)
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        if isinstance(config, dict):
            config = LanguageModelConfig.from_dict(config)
        if not isinstance(config, LanguageModelConfig):
            raise ValueError(f"config must be a LanguageModelConfig, got {config!r}")
        self.config = config
        dtype = self.dtype_policy
        self.embedding = TokenEmbedding(
            config.vocabulary_size, config.d_model, dtype=dtype, name="embedding"
        )
        self.positions = positions.of_options(config, dtype=dtype, name="positions")
        self.dropout = Dropout(config.dropout, dtype=dtype)
        # A decoder that attends to nothing but itself: the layers of the encoder, causal.
        self.decoder = Encoder(config.num_layers, **config.stack(), dtype=dtype, name="decoder")
        self.output_projection = Dense(
            config.vocabulary_size,
            tied=config.tie_embeddings == "all",
            dtype=dtype,
            name="output_projection",
        )
        self.build()

    def parts(self):
        """What the model is made of: lists of layers by name, as `Transformer.parts`."""
        return {
            "embeddings": [self.embedding, self.positions],
            "decoder": [self.decoder],
            "output": [self.output_projection],
        }

    def flops(self):
        """Floating-point operations of the forward pass, as `Transformer.flops`.

        Returns:
            {"token"}: of a token.
        """
        sizes = [self.config.d_model * self.config.vocabulary_size]
        for matrix in self.decoder.matrices():
            rows, columns = matrix.variable.shape
            sizes.append(rows * columns)
        return {"token": 2 * sum(sizes)}

    def build(self, input_shape=None):
        x_shape = (None, None, self.config.d_model)
        self.embedding.build((None, None))
        for layer in (self.positions, self.decoder, self.output_projection):
            layer.build(x_shape)
        self.built = True

    def call(self, inputs, training=None):
        ids, texts = inputs, None
        if isinstance(inputs, dict):
            if set(inputs) != {"ids", "texts"}:
                raise ValueError(
                    f'inputs must be ids [B, T] or {{"ids", "texts"}}, got {sorted(inputs)}'
                )
            ids, texts = inputs["ids"], inputs["texts"]
        ids = ops.convert_to_tensor(ids)
        if len(ids.shape) != 2:
            raise ValueError(f"ids must be [B, T], got shape {tuple(ids.shape)}")
        rows = Padded(padding_mask(ids)) if texts is None else Joined(texts)
        x = self.positions(self.embedding(rows.pack(ids)), positions=rows.positions)
        x = self.dropout(x, training=training)
        x = self.decoder(x, causal=True, training=training, rows=rows)
        return self.output_projection(
            x, embedding=self.embedding if self.output_projection.tied else None
        )

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}
