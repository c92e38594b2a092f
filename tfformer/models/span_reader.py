"""The span reader: a question and a text in, logits of where the answer begins and ends out."""

import keras
from keras import ops

from tfformer.config import EOS, PAD, SpanConfig
from tfformer.layers.dropout import Dropout
from tfformer.layers.output import Dense
from tfformer.models.text_encoder import TextEncoder

IMPOSSIBLE = -1e9  # the logit of a place that is none of the text; its softmax is 0


@keras.saving.register_keras_serializable("tfformer")
class SpanReader(TextEncoder):
    """P(begin | question, text) and P(end | question, text), by the encoder alone (Devlin et al.
    2019, section 4.2).

        logits = Dropout(Encoder(Dropout(E[ids] sqrt(D) + PE))) W + b, at the places of the text

    Args:
        config: a `SpanConfig`.

    Call arguments:
        inputs: integers [B, S]: the question, eos (3), the text, eos; 0 is padding after them. Or
            {"ids": these}.

    Returns:
        logits float32 [B, 2, S], of the begin and of the end, the last token of the answer; -1e9
        at places that are none of the text.

    Raises:
        ValueError: `config` is none; or other inputs are given, or, with learned positions, longer
            ones than `max_positions`.

    It trains with a plain `compile` and `fit` on elements (ids, labels [B, 2]), with the loss
    `PlaceCrossEntropy`: the labels are places, and 0, where no text begins, is none.

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
    """Which places of ids [B, S] are of the text, between the first eos and the second: [B, S]."""
    is_eos = ops.equal(ids, EOS)
    ended = ops.cumsum(ops.cast(is_eos, "int32"), axis=1)
    return ops.equal(ended, 1) & ops.logical_not(is_eos) & ops.not_equal(ids, PAD)
