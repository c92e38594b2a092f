"""Alternatives to cross-entropy for teaching: other distances between a prediction and the
target."""

import math

import keras
from keras import ops

from tfformer.loss import SmoothedCrossEntropy, label_logits, normalised


@keras.saving.register_keras_serializable("tfformer")
class KLDivergence(SmoothedCrossEntropy):
    """KL(q || p) = sum_v q_v log(q_v / p_v) with q = (1 - a) onehot(y) + a / V.

    It is the cross-entropy minus the entropy of q. That entropy does not depend on the model, so
    the gradients are the same.

    Args, call arguments, returns, raises: see `SmoothedCrossEntropy`.

    Example, in which the prediction equals the target:
        >>> q = np.array([[[0.025, 0.925, 0.025, 0.025]]], "float32")
        >>> round(float(KLDivergence(smoothing=0.1)([[1]], np.log(q))), 6) + 0.0
        0.0
    """

    def __init__(self, smoothing=0.1, r_drop=0.0, name="kl_divergence", **kwargs):
        super().__init__(smoothing, r_drop, name, **kwargs)

    def of_tokens(self, labels, logits):
        size = logits.shape[-1]
        others = self.smoothing / size
        entropy = 0.0
        for count, q in ((1, 1 - self.smoothing + others), (size - 1, others)):
            entropy -= count * q * math.log(q) if q else 0.0
        return super().of_tokens(labels, logits) - entropy


@keras.saving.register_keras_serializable("tfformer")
class SquaredDistance(SmoothedCrossEntropy):
    """sum_v (q_v - p_v)^2 with q = (1 - a) onehot(y) + a / V.

    A model that is certain and wrong gets almost no gradient. The gradient of a logit has the
    factor p; with cross-entropy it is p - q.

    Args, call arguments, returns, raises: see `SmoothedCrossEntropy`.

    Example with two labels, in which the model is certain of the wrong one:
        >>> loss = SquaredDistance(smoothing=0.0)
        >>> round(float(loss([[1]], [[[99.0, 0.0]]])), 4)
        2.0
    """

    def __init__(self, smoothing=0.1, r_drop=0.0, name="squared_distance", **kwargs):
        super().__init__(smoothing, r_drop, name, **kwargs)

    def of_tokens(self, labels, logits):
        size, a = logits.shape[-1], self.smoothing
        p, _ = normalised(logits)
        of_label = label_logits(labels, p)
        # sum (q - p)^2 = sum p^2 - 2 sum q p + sum q^2, so q [N, V] is never built.
        squares = (1 - a + a / size) ** 2 + (size - 1) * (a / size) ** 2
        return ops.sum(ops.square(p), axis=-1) - 2 * ((1 - a) * of_label + a / size) + squares


def loss_of(objective, smoothing):
    """The loss for a recipe's objective: "cross-entropy", "kl" or "squared"."""
    losses = {"cross-entropy": SmoothedCrossEntropy, "kl": KLDivergence, "squared": SquaredDistance}
    return losses[objective](smoothing)
