"""The span reader: from a question and a text to logits of the answer's begin and end."""

import keras
from keras import ops

from tfformer.annotations import Tensor
from tfformer.config import BOS, EOS, PAD, SpanConfig
from tfformer.layers.dropout import Dropout
from tfformer.layers.embedding import TokenTypes
from tfformer.layers.output import Dense
from tfformer.layers.packing import Rows
from tfformer.models.text_encoder import TextEncoder

IMPOSSIBLE = -1e9  # the logit of a position outside the text; its softmax is 0


@keras.saving.register_keras_serializable("tfformer")
class SpanReader(TextEncoder):
    """P(begin | question, text) and P(end | question, text), by an encoder alone (Devlin et al.
    2019, section 4.2).

        logits = Dropout(Encoder(Dropout(E[ids] sqrt(D) + PE))) W + b, at the positions of the text

    Args:
        config: a `SpanConfig`.

    Call arguments:
        inputs: integers [B, S]: the question, eos (3), the text, eos; then padded with 0. Or
            {"ids": the same}.

    Returns:
        logits float32 [B, 2, S], of the answer's first token and of its last one; -1e9 at positions
        outside the text.

    Raises:
        ValueError: `config` is of another class, or the inputs have another form; or, with learned
            positions, the inputs are longer than `max_positions`.

    A plain `compile` and `fit` trains it on elements (ids, labels [B, 2]), with the loss
    `PositionCrossEntropy`. The labels are positions. 0 means no label, since no text begins there.

    Example:
        >>> model = SpanReader(SpanConfig.preset("test", vocabulary_size=17))
        >>> tuple(model(np.array([[9, 8, 3, 6, 7, 3], [4, 3, 5, 3, 0, 0]])).shape)
        (2, 2, 6)
    """

    configuration = SpanConfig
    config: SpanConfig

    def make_head(self, config: SpanConfig, dtype: keras.DTypePolicy) -> None:
        self.token_types = None
        if config.token_types:
            self.token_types = TokenTypes(2, config.d_model, dtype=dtype, name="token_types")
        self.head_dropout = Dropout(config.dropout, dtype=dtype)
        self.output_projection = Dense(2, use_bias=True, dtype=dtype, name="output_projection")

    def head(self) -> dict[str, list[keras.layers.Layer]]:
        types = [] if self.token_types is None else [self.token_types]
        return {**({"types": types} if types else {}), **super().head()}

    def read(self, ids: Tensor) -> Tensor:
        """The ids that the encoder reads, with a bos in front or another eos before the text."""
        return with_separators(ids, self.config.add_bos, self.config.separators)

    def typed(self, x: Tensor, ids: Tensor, rows: Rows) -> Tensor:
        if self.token_types is None:
            return x
        return self.token_types(x, rows.pack(types_of(ids)))

    def call(self, inputs: Tensor | dict[str, Tensor], training: bool | None = None) -> Tensor:
        ids = self._ids_of(inputs)
        states = self.states(self.read(ids), training)
        if self.config.added:
            places = read_places(ids, self.config.add_bos, self.config.separators)
            states = ops.take_along_axis(states, places[:, :, None], axis=1)  # [B, S, D]
        states = self.head_dropout(states, training=training)
        logits = ops.cast(self.output_projection(states), "float32")
        logits = ops.swapaxes(logits, 1, 2)  # [B, 2, S]
        return ops.where(in_text(ids)[:, None], logits, IMPOSSIBLE)


def in_text(ids):
    """Which positions of ids [B, S] belong to the text, between first and second eos: [B, S]."""
    is_eos = ops.equal(ids, EOS)
    ended = ops.cumsum(ops.cast(is_eos, "int32"), axis=1)
    return ops.equal(ended, 1) & ops.logical_not(is_eos) & ops.not_equal(ids, PAD)


def types_of(ids):
    """The type of each of the ids [B, S]: 0 up to the first eos, 1 after it; int32 [B, S]."""
    is_eos = ops.cast(ops.equal(ids, EOS), "int32")
    return ops.cast(ops.cumsum(is_eos, axis=1) - is_eos > 0, "int32")


def with_separators(ids, add_bos, separators):
    """ids [B, S] with a bos in front, and with a second eos between question and text."""
    if separators == 2:
        ids = ops.concatenate([ids, ops.full_like(ids[:, :1], PAD)], axis=1)
        after = ops.concatenate([ids[:, :1], ids[:, :-1]], axis=1)
        ids = ops.where(ops.equal(types_of(ids), 0), ids, after)
    if add_bos:
        ids = ops.concatenate([ops.full_like(ids[:, :1], BOS), ids], axis=1)
    return ids


def read_places(ids, add_bos, separators):
    """Where each of the ids [B, S] is in the result of `with_separators`; int32 [B, S]."""
    places = ops.arange(ops.shape(ids)[1], dtype="int32") + int(add_bos)
    return places + types_of(ids) * (separators - 1)
