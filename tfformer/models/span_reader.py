"""The span reader: from a question and a text to logits of the answer's begin and end."""

import keras
from keras import ops

from tfformer.config import EOS, PAD, SpanConfig
from tfformer.layers.dropout import Dropout
from tfformer.layers.output import Dense
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

    def make_head(self, config, dtype):
        self.head_dropout = Dropout(config.dropout, dtype=dtype)
        self.output_projection = Dense(2, use_bias=True, dtype=dtype, name="output_projection")

    def call(self, inputs, training=None):
        ids = self._ids_of(inputs)
        states = self.head_dropout(self.states(ids, training), training=training)
        logits = ops.cast(self.output_projection(states), "float32")
        logits = ops.swapaxes(logits, 1, 2)  # [B, 2, S]
        return ops.where(in_text(ids)[:, None], logits, IMPOSSIBLE)


def in_text(ids):
    """Which positions of ids [B, S] belong to the text, between first and second eos: [B, S]."""
    is_eos = ops.equal(ids, EOS)
    ended = ops.cumsum(ops.cast(is_eos, "int32"), axis=1)
    return ops.equal(ended, 1) & ops.logical_not(is_eos) & ops.not_equal(ids, PAD)
