"""The language model: a decoder without an encoder, from ids to logits of the next token."""

import keras
from keras import ops

from tfformer.annotations import Tensor
from tfformer.config import LanguageModelConfig
from tfformer.layers.output import Dense
from tfformer.layers.packing import Joined
from tfformer.models.one_stack import OneStack


@keras.saving.register_keras_serializable("tfformer")
class LanguageModel(OneStack):
    """P(w_t | w_1 ... w_(t - 1)), computed by the decoder of "Attention Is All You Need" without an
    encoder (Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", section 4.2.3;
    Radford et al. 2018).

        logits = W_out CausalEncoder(Dropout(E[ids] sqrt(D) + PE))

    Args:
        config: a `LanguageModelConfig`.

    Call arguments:
        inputs: integers [B, T], each row beginning with bos (2) and padded with 0 at the end. Or
            {"ids": integers [B, T], "texts": integers [B, T]}, if a row holds several texts, one
            after the other: see `tfformer.layers.packing.Joined`.

    Returns:
        logits [B, T, V]: [:, t] scores the token that follows ids[:, :t + 1]. For joined texts,
        [B * T, V], one row for each position.

    Raises:
        ValueError: `config` is of another class, or the inputs have another form; or, with learned
            positions, the inputs are longer than `max_positions`.

    A plain `compile` and `fit` trains it on elements (ids, labels [B, T]). The labels are the texts
    without bos and with eos. `tfformer.generate` generates text with it.

    Example:
        >>> model = LanguageModel(LanguageModelConfig.preset("test", vocabulary_size=17))
        >>> tuple(model(np.array([[2, 9, 8, 6, 5], [2, 4, 7, 0, 0]])).shape)
        (2, 5, 17)
        >>> found = generate(model, prompt=[[2, 9, 8], [2, 4]], max_length=7, search="greedy")
        >>> tuple(found.token_ids.shape)[:2]
        (2, 1)
    """

    configuration = LanguageModelConfig
    config: LanguageModelConfig

    def make_head(self, config: LanguageModelConfig, dtype: keras.DTypePolicy) -> None:
        self.output_projection = Dense(
            config.vocabulary_size,
            tied=config.tie_embeddings == "all",
            use_bias=config.output_bias,
            dtype=dtype,
            name="output_projection",
        )

    def flops(self) -> dict[str, int]:
        """Floating-point operations of the forward pass, as `Transformer.flops`.

        Returns:
            {"token"}: the operations for one token.
        """
        output = 2 * self.config.d_model * self.config.vocabulary_size
        return {"token": super().flops()["token"] + output}

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
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
        rows = None if texts is None else Joined(texts)
        return self.tied_logits(self.states(ids, training, rows))
