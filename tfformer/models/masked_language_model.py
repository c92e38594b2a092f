"""The masked language model: a text with gaps in, logits of every token out."""

import keras
from keras import ops

from tfformer.config import MaskedLanguageModelConfig
from tfformer.layers.masks import padding_mask
from tfformer.layers.output import Dense
from tfformer.layers.pooling import Pooling
from tfformer.layers.rows import Joined
from tfformer.models.text_encoder import TextEncoder


@keras.saving.register_keras_serializable("tfformer")
class MaskedLanguageModel(TextEncoder):
    """P(w_s | the text, in which w_s may be masked), by the encoder alone (Devlin et al. 2019).

        logits = W_out Encoder(Dropout(E[ids] sqrt(D) + PE))

    The mask is bos (2), which no text has.

    Args:
        config: a `MaskedLanguageModelConfig`.

    Call arguments:
        inputs: integers [B, S], each row ending with eos (3); 0 is padding after them. Or {"ids":
            these}; or {"ids": integers [B, S], "texts": integers [B, S]}, where a row has several
            texts one behind the other: see `tfformer.layers.rows.Joined`; and with these perhaps
            "asked" [N], the places b * S + s whose logits are wanted.

    Returns:
        logits [B, S, V]; of joined texts, of each place, [B * S, V], or of those asked for, [N, V].

    Raises:
        ValueError: `config` is none; or other inputs are given, or, with learned positions, longer
            ones than `max_positions`.

    It trains with a plain `compile` and `fit` on elements (ids, labels [B, S]), the labels being
    the tokens that were masked, and padding elsewhere.

    Example:
        >>> model = MaskedLanguageModel(MaskedLanguageModelConfig.preset("test", 17))
        >>> tuple(model(np.array([[9, 2, 6, 3], [4, 3, 0, 0]])).shape)
        (2, 4, 17)
    """

    configuration = MaskedLanguageModelConfig

    def make_head(self, config, dtype):
        self.pooling = Pooling("mean", dtype=dtype, name="pooling")
        self.output_projection = Dense(
            config.vocabulary_size,
            tied=config.tie_embeddings == "all",
            use_bias=True,
            dtype=dtype,
            name="output_projection",
        )

    def call(self, inputs, training=None):
        rows = asked = None
        if isinstance(inputs, dict) and set(inputs) - {"asked"} == {"ids", "texts"}:
            rows, asked, inputs = Joined(inputs["texts"]), inputs.get("asked"), inputs["ids"]
        x = self.states(self._ids_of(inputs), training, rows)
        return self.tied_logits(x if asked is None else ops.take(x, asked, axis=0))

    def embed(self, inputs, training=None):
        """The vectors of texts, the mean over their tokens: ids [B, S] -> [B, D].

        Raises:
            ValueError: as a call.
        """
        ids = ops.convert_to_tensor(self._ids_of(inputs))
        return self.pooling(self.states(ids, training), mask=padding_mask(ids))
