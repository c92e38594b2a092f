"""The masked language model: from a text with masked tokens to logits for every position."""

import keras
from keras import ops

from tfformer.annotations import Tensor
from tfformer.config import MaskedLanguageModelConfig
from tfformer.layers.masks import padding_mask
from tfformer.layers.output import Dense, Transform
from tfformer.layers.packing import Joined
from tfformer.layers.pooling import Pooling
from tfformer.models.text_encoder import TextEncoder


@keras.saving.register_keras_serializable("tfformer")
class MaskedLanguageModel(TextEncoder):
    """P(w_s | the text, in which w_s may be masked), by an encoder alone (Devlin et al. 2019).

        logits = W_out Encoder(Dropout(E[ids] sqrt(D) + PE))

    The mask token is bos (2), which occurs in no text, or another one that the vocabulary has for
    this. With `transform`, a dense layer and a LayerNorm come before W_out. With `add_bos`, rows of
    several texts get no bos.

    Args:
        config: a `MaskedLanguageModelConfig`.

    Call arguments:
        inputs: integers [B, S], each row ending with eos (3), then padded with 0. Or {"ids": the
            same}. Or {"ids": integers [B, S], "texts": integers [B, S]}, if a row holds several
            texts, one after the other: see `tfformer.layers.packing.Joined`. The last form may also
            have "asked" [N]: the positions b * S + s whose logits are wanted.

    Returns:
        logits [B, S, V]. For joined texts, [B * S, V], one row for each position; with "asked",
        [N, V].

    Raises:
        ValueError: `config` is of another class, or the inputs have another form; or, with learned
            positions, the inputs are longer than `max_positions`.

    A plain `compile` and `fit` trains it on elements (ids, labels [B, S]). The labels are the
    masked tokens, and padding elsewhere.

    Example:
        >>> model = MaskedLanguageModel(MaskedLanguageModelConfig.preset("test", 17))
        >>> tuple(model(np.array([[9, 2, 6, 3], [4, 3, 0, 0]])).shape)
        (2, 4, 17)
    """

    configuration = MaskedLanguageModelConfig
    config: MaskedLanguageModelConfig

    def make_head(self, config: MaskedLanguageModelConfig, dtype: keras.DTypePolicy) -> None:
        self.pooling = Pooling("mean", dtype=dtype, name="pooling")
        self.transform = None
        if config.transform:
            known = config.d_model, config.activation, config.epsilon, config.normalization
            self.transform = Transform(*known, dtype=dtype, name="transform")
        self.output_projection = Dense(
            config.vocabulary_size,
            tied=config.tie_embeddings == "all",
            use_bias=True,
            dtype=dtype,
            name="output_projection",
        )

    def head(self) -> dict[str, list[keras.layers.Layer]]:
        output = super().head()["output"]
        return {"output": output if self.transform is None else [self.transform, *output]}

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        rows = asked = None
        if isinstance(inputs, dict) and set(inputs) - {"asked"} == {"ids", "texts"}:
            rows, asked, inputs = Joined(inputs["texts"]), inputs.get("asked"), inputs["ids"]
        ids = self._ids_of(inputs)
        x = self.token_states(ids, training) if rows is None else self.states(ids, training, rows)
        x = x if asked is None else ops.take(x, asked, axis=0)
        return self.tied_logits(
            x if self.transform is None else self.transform(x, training=training)
        )

    def embed(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        """The vectors of texts, each the mean over its tokens: ids [B, S] -> [B, D].

        Raises:
            ValueError: as a call.
        """
        ids = self.read(self._ids_of(inputs))
        return self.pooling(self.states(ids, training), mask=padding_mask(ids))
