"""The metrics of training: accuracy and perplexity."""

from typing import Any

import keras
from keras import ops

from tfformer.annotations import Tensor
from tfformer.loss import (
    IMPOSSIBLE,
    flattened,
    label_logits,
    normalised,
    place_logits,
    token_weights,
)


@keras.saving.register_keras_serializable("tfformer")
class TokenAccuracy(keras.metrics.Metric):
    """The share of tokens whose label has the largest logit, over all batches so far.

    Call arguments:
        y_true: integers [B, T], ids of the vocabulary. Only id 0, padding, is ignored. Any number
            that is not an id (-1, -100, V) makes the result NaN.
        y_pred: logits [B, T, V].
        sample_weight: optional [B] or [B, T].

    Raises:
        ValueError: the numbers of labels and logits differ.

    Example, a correct token, a wrong one, and padding:
        >>> accuracy = TokenAccuracy()
        >>> accuracy.update_state([[5, 3, 0]], keras.ops.one_hot([[5, 4, 2]], 7))
        >>> float(accuracy.result())
        0.5
    """

    def __init__(self, name: str = "accuracy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.correct = self.add_variable((), "zeros", name="correct")
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        weights = ops.reshape(token_weights(y_true, sample_weight), (-1,))  # [N]
        labels, logits = flattened(y_true, y_pred)
        of_labels = label_logits(labels, logits)
        hits = ops.cast(ops.equal(of_labels, ops.max(logits, axis=-1)), "float32")
        hits = ops.where(ops.isnan(of_labels), of_labels, hits)
        self.correct.assign_add(ops.sum(hits * weights))
        self.total.assign_add(ops.sum(weights))

    def result(self) -> Tensor:
        return self.correct / ops.maximum(self.total, 1e-9)


@keras.saving.register_keras_serializable("tfformer")
class Perplexity(keras.metrics.Metric):
    """exp(total negative log-likelihood / number of tokens), over all batches so far, unsmoothed.

    Call arguments of `update_state`, and errors: those of `TokenAccuracy`.

    Example, 7 ids of equal probability:
        >>> perplexity = Perplexity()
        >>> perplexity.update_state([[5, 3, 0]], keras.ops.zeros((1, 3, 7)))
        >>> round(float(perplexity.result()), 4)
        7.0
    """

    def __init__(self, name: str = "perplexity", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.nll = self.add_variable((), "zeros", name="nll")
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        weights = ops.reshape(token_weights(y_true, sample_weight), (-1,))  # [N]
        labels, logits = flattened(y_true, y_pred)
        nll = normalised(logits)[1] - label_logits(labels, logits)
        self.nll.assign_add(ops.sum(nll * weights))
        self.total.assign_add(ops.sum(weights))

    def result(self) -> Tensor:
        return ops.exp(self.nll / ops.maximum(self.total, 1e-9))


@keras.saving.register_keras_serializable("tfformer")
class LabelAccuracy(TokenAccuracy):
    """`TokenAccuracy` for labels 1 to C. Label n is column n - 1 of the logits; 0 means no label.

    Call arguments of `update_state`, and errors: those of `TokenAccuracy`.

    Example, a correct label, and no label:
        >>> accuracy = LabelAccuracy()
        >>> accuracy.update_state([[2], [0]], keras.ops.one_hot([1, 1], 3))
        >>> float(accuracy.result())
        1.0
    """

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        super().update_state(y_true, _with_none(y_pred), sample_weight)


@keras.saving.register_keras_serializable("tfformer")
class LabelPerplexity(Perplexity):
    """`Perplexity` for labels 1 to C. Label n is column n - 1 of the logits; 0 means no label.

    Call arguments of `update_state`, and errors: those of `TokenAccuracy`.

    Example, 3 labels of equal probability:
        >>> perplexity = LabelPerplexity()
        >>> perplexity.update_state([[2], [0]], keras.ops.zeros((2, 3)))
        >>> round(float(perplexity.result()), 4)
        3.0
    """

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        super().update_state(y_true, _with_none(y_pred), sample_weight)


def _with_none(logits):
    """Logits [..., C] with a column in front for label 0, which has probability 0."""
    logits = ops.cast(logits, "float32")
    return ops.concatenate([ops.full_like(logits[..., :1], IMPOSSIBLE), logits], axis=-1)


@keras.saving.register_keras_serializable("tfformer")
class PositionAccuracy(TokenAccuracy):
    """`TokenAccuracy` for positions, integers [...] (0: no label), and logits [..., S]."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        weights, logits = token_weights(y_true, sample_weight), ops.cast(y_pred, "float32")
        hits = ops.equal(place_logits(y_true, logits), ops.max(logits, axis=-1))
        self.correct.assign_add(ops.sum(ops.cast(hits, "float32") * weights))
        self.total.assign_add(ops.sum(weights))


@keras.saving.register_keras_serializable("tfformer")
class PositionPerplexity(Perplexity):
    """`Perplexity` for positions, integers [...] (0: no label), and logits [..., S]."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        weights, logits = token_weights(y_true, sample_weight), ops.cast(y_pred, "float32")
        nll = ops.logsumexp(logits, axis=-1) - place_logits(y_true, logits)
        self.nll.assign_add(ops.sum(ops.where(weights > 0, nll, 0.0) * weights))
        self.total.assign_add(ops.sum(weights))
