"""Connectionist temporal classification, CTC (Graves et al. 2006): the loss of a label sequence,
for a model that predicts more positions than labels.

Each position holds a label or the blank, pad (id 0). Equal neighbours count as one label, and
blanks are removed: 4 4 0 4 5 5 becomes 4 4 5. The probability of a sequence is the sum over all
position sequences that become it. Dynamic programming computes the sum in one pass.
"""

from typing import Any

import keras
from keras import ops

from tfformer.annotations import Tensor
from tfformer.backend.gradients import upstream_gradient
from tfformer.config import PAD
from tfformer.loss import MeanOfLabels, normalised, token_weights
from tfformer.metrics import TokenAccuracy

# Replaces log 0: minus infinity would make the gradients of sums NaN.
IMPOSSIBLE = -1e30


def collapse(ids):
    """Turn the ids of positions into labels, integers [B, P] -> [B, P]: merge equal neighbours,
    remove blanks, and pad at the end.

    Example:
        >>> np.array(collapse(np.array([[4, 4, 0, 4, 5, 5]]))).tolist()
        [[4, 4, 5, 0, 0, 0]]
    """
    ids = ops.convert_to_tensor(ids)
    before = ops.pad(ids[:, :-1], ((0, 0), (1, 0)), constant_values=PAD)
    kept = ops.not_equal(ids, PAD) & ops.not_equal(ids, before)
    # Scatter each kept id to its index among the kept ones; the rest to an extra, removed column.
    length = ops.shape(ids)[1]
    number = ops.cumsum(ops.cast(kept, "int32"), axis=1) - 1
    places = ops.where(kept, number, length)
    rows = ops.broadcast_to(ops.arange(ops.shape(ids)[0])[:, None], ops.shape(ids))
    places = ops.reshape(ops.stack([rows, places], axis=-1), (-1, 2))  # [B * P, 2]
    kept = ops.reshape(ops.where(kept, ids, PAD), (-1,))  # [B * P]
    return ops.scatter(places, kept, (ops.shape(ids)[0], length + 1))[:, :length]


def log_probs_of(ids, logits):
    """log softmax(logits) at some ids of each row: integers [N, S], float32 [N, V] -> [N, S].

    The gradient is explicit: the scattered upstream gradient, minus p times its sum.
    """
    size = logits.shape[-1]

    @ops.custom_gradient
    def chosen(logits):
        p, log_total = normalised(logits)
        rows = ops.arange(ops.shape(logits)[0], dtype=ids.dtype)[:, None]
        flat = ops.reshape(logits, (-1,))  # [N V]
        found = ops.take(flat, ops.reshape(rows * size + ids, (-1,)))  # [N S]
        value = ops.reshape(found, ops.shape(ids)) - log_total[:, None]  # [N, S]

        def gradient(*args, upstream=None):
            upstream = upstream_gradient(args, upstream)
            own = ops.broadcast_to(rows, ops.shape(ids))
            places = ops.reshape(ops.stack([own, ids], axis=-1), (-1, 2))  # [N * S, 2]
            values = ops.reshape(upstream, (-1,))  # [N * S]
            scattered = ops.scatter(places, values, ops.shape(logits))
            return scattered - p * ops.sum(upstream, axis=1, keepdims=True)

        return value, gradient

    return chosen(logits)


def ctc_log_likelihood(labels, logits):
    """log P(labels) of each row, summed over all position sequences that become the labels.

    Args:
        labels: integers [B, T]; 0 is padding after them.
        logits: [B, P, V]; [:, :, 0] are those of the blank.

    Returns:
        float32 [B], in nats; `IMPOSSIBLE` or less if there are too few positions.
    """
    labels = ops.cast(ops.convert_to_tensor(labels), "int32")
    batch, length = ops.shape(labels)
    places = ops.shape(logits)[1]
    # The states, in order: blank, label, blank, label, ... blank; 2 T + 1 of them.
    states = ops.stack([ops.zeros_like(labels), labels], axis=-1)
    states = ops.reshape(states, (batch, 2 * length))  # [B, 2 T]
    states = ops.pad(states, ((0, 0), (0, 1)))
    count = 2 * length + 1
    flat = ops.reshape(ops.cast(logits, "float32"), (-1, logits.shape[-1]))  # [B * P, V]
    said = ops.repeat(states, places, axis=0)  # [B * P, 2 T + 1]
    emitted = log_probs_of(said, flat)
    emitted = ops.reshape(emitted, (batch, places, count))  # [B, P, 2 T + 1]
    emitted = ops.transpose(emitted, (1, 0, 2))  # [P, B, 2 T + 1]
    # The blank between two labels may be skipped, unless the labels are equal.
    differ = ops.not_equal(states[:, 2:], states[:, :-2]) & ops.not_equal(states[:, 2:], PAD)
    may_skip = ops.pad(differ, ((0, 0), (2, 0)))
    first = ops.where(ops.arange(count) < 2, emitted[0], IMPOSSIBLE)

    def step(alpha, emitted):
        padded = ops.pad(alpha, ((0, 0), (2, 0)), constant_values=IMPOSSIBLE)
        skipped = ops.where(may_skip, padded[:, :-2], IMPOSSIBLE)
        alpha = ops.logsumexp(ops.stack([alpha, padded[:, 1:-1], skipped]), axis=0) + emitted
        return alpha, alpha

    alpha, _ = ops.scan(step, first, emitted[1:])
    # A path ends in the last label or in the blank after it.
    number = ops.sum(ops.cast(ops.not_equal(labels, PAD), "int32"), axis=1)  # [B]
    at_end = ops.one_hot(2 * number, count) + ops.one_hot(2 * number - 1, count)
    return ops.logsumexp(ops.where(at_end > 0, alpha, IMPOSSIBLE), axis=1)


@keras.saving.register_keras_serializable("tfformer")
class CTCLoss(MeanOfLabels):
    """-log P(labels) by CTC, divided by the number of labels in a batch (Graves et al. 2006,
    equation 8).

    Call arguments:
        y_true: integers [B, T]; 0 is padding after the labels. At positions, 0 is the blank.
        y_pred: logits [B, P, V]. A row with too few positions for its labels counts 0.
        sample_weight: optional [B] or [B, T].

    Returns:
        A scalar, in nats per label. A batch without labels gives 0.

    Example, two positions, each 4 or the blank with equal probability: 4 4, 4 0 and 0 4 become 4:
        >>> logits = [[[0.0, -99.0, -99.0, -99.0, 0.0]] * 2]
        >>> round(float(CTCLoss()([[4]], keras.ops.array(logits))), 4)  # -log 3/4
        0.2877
    """

    # The weight of R-Drop, which compares tokens; CTC has no R-Drop.
    r_drop = 0.0

    def __init__(self, name: str = "ctc_loss", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """The loss of each row, divided equally among its labels: float32 [B, T]."""
        found = ctc_log_likelihood(y_true, y_pred)
        found = ops.where(found > IMPOSSIBLE / 2, found, 0.0)
        number = ops.sum(token_weights(y_true), axis=1)
        each = -found / ops.maximum(number, 1.0)
        return ops.broadcast_to(each[:, None], ops.shape(y_true))

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "dtype": self.dtype}


@keras.saving.register_keras_serializable("tfformer")
class CTCAccuracy(TokenAccuracy):
    """The share of correct labels. The most probable ids are collapsed, then compared by position.

    Call arguments of `update_state`: those of `CTCLoss`.

    Example:
        >>> accuracy = CTCAccuracy()
        >>> accuracy.update_state([[4, 5]], keras.ops.one_hot([[4, 4, 0, 6]], 7))
        >>> float(accuracy.result())
        0.5
    """

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.cast(y_true, "int32")
        weights, length = token_weights(y_true, sample_weight), ops.shape(y_true)[1]
        found = collapse(ops.cast(ops.argmax(y_pred, axis=-1), "int32"))
        found = ops.pad(found, ((0, 0), (0, length)))[:, :length]
        hits = ops.cast(ops.equal(found, y_true), "float32")
        self.correct.assign_add(ops.sum(hits * weights))
        self.total.assign_add(ops.sum(weights))
