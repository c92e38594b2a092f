"""The training losses: label-smoothed cross-entropy and its variants."""

import math
import numbers
from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from tfformer.annotations import Tensor
from tfformer.backend.gradients import upstream_gradient
from tfformer.config import PAD

IMPOSSIBLE = -1e9  # a logit whose softmax is 0


def token_weights(labels, sample_weight=None):
    """1 at the tokens of labels [B, T], 0 at padding; multiplied by `sample_weight`, if given."""
    weights = ops.cast(ops.not_equal(labels, PAD), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    if getattr(sample_weight.shape, "rank", 0) is None:
        # If some steps have [B] and some [B, T], TensorFlow builds one graph of unknown rank.
        sample_weight = ops.reshape(sample_weight, (ops.shape(labels)[0], -1))  # [B, 1] or [B, T]
    while len(sample_weight.shape) < len(weights.shape):
        sample_weight = sample_weight[..., None]
    return weights * sample_weight


def _size(shape):
    """The number of elements in a tensor of this shape; None if unknown."""
    if getattr(shape, "rank", 0) is None or None in tuple(shape):
        return None
    return math.prod(shape)


def flattened(labels, logits):
    """Labels [...] and logits [..., V] as int32 [N] and float32 [N, V]. Raises a ValueError if
    their numbers differ.

    Loss and metrics all start with this, so a compiler computes it once.
    """
    labels = ops.convert_to_tensor(labels)
    if len({_size(labels.shape), _size(logits.shape[:-1])} - {None}) > 1:
        raise ValueError(
            f"y_pred must be logits [..., V] of each label, got {tuple(logits.shape)} and labels "
            f"{tuple(labels.shape)}"
        )
    logits = ops.reshape(logits, (-1, logits.shape[-1]))  # [N, V]
    labels = ops.reshape(labels, (-1,))  # [N]
    return ops.cast(labels, "int32"), ops.cast(logits, "float32")


def _over_replicas(count):
    """A number summed over the replicas of a `tf.distribute` strategy; otherwise unchanged."""
    if keras.backend.backend() != "tensorflow":
        return count
    from tfformer.backend.replicas import total

    return total(count)


def label_logits(labels, logits):
    """The logit of each label: integers [B, T] and logits [B, T, V] give [B, T].

    A label that is not an id gives NaN. A graph cannot raise on every device, and the logit of
    another id would hide the mistake. The gather runs over the flattened logits, because
    `ops.take_along_axis` takes three times as long.
    """
    size = logits.shape[-1]
    flat = ops.reshape(logits, (-1,))  # [N V]
    labels = ops.cast(ops.reshape(labels, (-1,)), "int32")  # [N]
    rows = ops.arange(ops.shape(labels)[0], dtype="int32") * size
    found = ops.take(flat, rows + within(labels, size))  # [N]
    found = ops.where(ops.equal(labels, within(labels, size)), found, float("nan"))
    return ops.reshape(found, ops.shape(logits)[:-1])  # [B, T]


def within(labels, size):
    """The labels clipped to the ids of a vocabulary of this size."""
    return ops.clip(labels, 0, size - 1)


def normalised(logits):
    """p = softmax(z) and log sum exp(z), which is max z - log max p: [N, V], [N].

    Loss and metrics all start with this, so a compiler computes it once. A softmax is one optimised
    library operation, whereas exp, its sum and the division each pass over [N, V].
    """
    p = ops.softmax(logits, axis=-1)
    return p, ops.max(logits, axis=-1) - ops.log(ops.max(p, axis=-1))


def smoothed_cross_entropy(labels, logits, smoothing=0.1):
    """-sum_v q_v log p_v with q = (1 - a) onehot(y) + a / V, for each token.

    The gradient p - q is explicit: one pass over [N, V] that reuses the results of the forward
    pass. With automatic differentiation, the mean and the gather would each fill another [N, V].

    Args:
        labels: int32 [N].
        logits: float32 [N, V].
        smoothing: a. Default 0.1.

    Returns:
        float32 [N], in nats.
    """
    size = logits.shape[-1]

    @ops.custom_gradient
    def loss(logits):
        p, log_total = normalised(logits)
        value = log_total - (1 - smoothing) * label_logits(labels, logits)
        if smoothing:
            value = value - smoothing * ops.mean(logits, axis=-1)

        def gradient(*args, upstream=None):
            upstream = upstream_gradient(args, upstream)
            gradient = p * upstream[:, None]
            if smoothing:
                gradient = gradient - upstream[:, None] * (smoothing / size)
            at_label = label_logits(labels, gradient) - (1 - smoothing) * upstream
            rows = ops.arange(ops.shape(labels)[0], dtype="int32")
            places = ops.stack([rows, within(labels, size)], axis=-1)  # [N, 2]
            return ops.scatter_update(gradient, places, at_label)

        return value, gradient

    return loss(logits)


def symmetric_divergence(logits):
    """(KL(p || q) + KL(q || p)) / 2 of two predictions of the same tokens (Liang et al. 2021).

    With d = z_p - z_q, the difference of the logits, it equals (E_p[d] - E_q[d]) / 2; the
    normalisers cancel. The gradient is explicit too: (p (d - E_p[d]) + p - q) / 2 for the logits of
    p, and (q (E_q[d] - d) + q - p) / 2 for those of q.

    Args:
        logits: float32 [2 N, V], first those of p, then those of q.

    Returns:
        float32 [N], in nats.
    """

    @ops.custom_gradient
    def divergence(logits):
        p, q = ops.split(normalised(logits)[0], 2)
        z_p, z_q = ops.split(logits, 2)
        difference = z_p - z_q
        of_p = ops.sum(p * difference, axis=-1, keepdims=True)
        of_q = ops.sum(q * difference, axis=-1, keepdims=True)

        def gradient(*args, upstream=None):
            half = upstream_gradient(args, upstream)[:, None] / 2
            by_p = half * (p * (difference + (1 - of_p)) - q)
            by_q = half * (q * ((1 + of_q) - difference) - p)
            return ops.concatenate([by_p, by_q])

        return ops.squeeze(of_p - of_q, -1) / 2, gradient  # [N]

    return divergence(logits)


class MeanOfLabels(keras.losses.Loss):
    """Base class of losses whose `call` returns the loss of each label. The loss is the mean over
    the real labels of a batch; under a `tf.distribute` strategy, over those of all replicas."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        # This class computes the mean over labels itself; Keras would average over rows.
        super().__init__(name=name, **{**kwargs, "reduction": "none"})

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        y_true = ops.cast(y_true, "int32")
        weights = token_weights(y_true, sample_weight)
        total = ops.sum(self.call(y_true, y_pred) * weights)
        return total / ops.maximum(_over_replicas(ops.sum(weights)), 1e-9)


@keras.saving.register_keras_serializable("tfformer")
class SmoothedCrossEntropy(MeanOfLabels):
    """Cross-entropy against (1 - a) onehot(y) + a / V, the mean over the real tokens of a batch.

    -sum_v q_v log p_v with q = (1 - a) onehot(y) + a / V  (Szegedy et al. 2016; section 5.4 of
    Vaswani et al. 2017 with a = 0.1). Since log p = z - logsumexp(z), this is

        logsumexp(z) - (1 - a) z_y - a mean(z),

    computed by a softmax, reductions and one gather. A one-hot [B, T, V] is never built.

    Under a `tf.distribute` strategy the batch is that of all replicas. Each replica divides its sum
    by the number of tokens in all replicas, and Keras adds up their gradients.

    Args:
        smoothing: a, in [0, 1). Default 0.1.
        r_drop: alpha, the weight of R-Drop (Liang et al. 2021, equation 4, halved, because this
            loss is the mean of their two cross-entropies). With R-Drop a batch holds its rows
            twice, one copy after the other. Only dropout makes the two predictions of a token
            differ. The loss adds alpha / 2 times their symmetric divergence. Default 0: no R-Drop,
            and each row is there once.

    Call arguments:
        y_true: integers [B, T] (or of any other shape), ids of the vocabulary. Only id 0, padding,
            is ignored. Any number that is not an id (-1, -100, V) makes the loss and its gradient
            NaN, even with a weight of 0.
        y_pred: logits [B, T, V]; the computation is in float32 whatever their dtype.
        sample_weight: optional [B] or [B, T], a weight for each row or token.

    Returns:
        A scalar, in nats per token. A batch without tokens gives 0.

    Raises:
        ValueError: `smoothing` is not in [0, 1), or `r_drop` is not a number of at least 0; in a
            call, the numbers of labels and logits differ.
        TypeError: an argument is unknown, such as `from_logits`.

    Example, log 7, for 7 ids of equal probability:
        >>> loss = SmoothedCrossEntropy(smoothing=0.1)
        >>> round(float(loss([[5, 3, 0]], keras.ops.zeros((1, 3, 7)))), 4)
        1.9459
    """

    smoothing: float
    r_drop: float
    # Arguments of Keras's cross-entropies, and what to use instead.
    MEANT = {
        "from_logits": "y_pred are always logits",
        "label_smoothing": "give smoothing",
        "ignore_class": "padding, id 0, always counts nothing",
    }

    def __init__(
        self,
        smoothing: float = 0.1,
        r_drop: float = 0.0,
        name: str = "smoothed_cross_entropy",
        **kwargs: Any,
    ) -> None:
        for other in self.MEANT.keys() & kwargs.keys():
            hint = self.MEANT[other]
            raise TypeError(f"{type(self).__name__} has no argument {other}: {hint}")
        super().__init__(name, **kwargs)
        if not isinstance(smoothing, numbers.Real) or not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be in [0, 1), got smoothing={smoothing!r}")
        if not isinstance(r_drop, numbers.Real) or not r_drop >= 0:
            raise ValueError(f"r_drop must be at least 0, got r_drop={r_drop!r}")
        self.smoothing, self.r_drop = smoothing, r_drop

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """The loss of each token, float32, in the shape of `y_true`."""
        labels, logits = flattened(y_true, y_pred)
        loss = self.of_tokens(labels, logits)
        if self.r_drop:
            loss = loss + self.r_drop / 2 * ops.tile(symmetric_divergence(logits), (2,))
        return ops.reshape(loss, ops.shape(y_true))  # [B, T]

    def of_tokens(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The loss of labels int32 [N] and logits float32 [N, V]: float32 [N], in nats."""
        return smoothed_cross_entropy(labels, logits, self.smoothing)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": self.dtype,
            "smoothing": self.smoothing,
            "r_drop": self.r_drop,
        }


@keras.saving.register_keras_serializable("tfformer")
class LengthCrossEntropy(SmoothedCrossEntropy):
    """The loss of mask-predict: smoothed cross-entropy for the tokens, and unsmoothed cross-entropy
    for the length of the target.

    Args:
        smoothing, r_drop: for the tokens, see `SmoothedCrossEntropy`.

    Call arguments:
        y_true: integers [B, 1 + T], the id of the length, then ids of the vocabulary. Padding, id
            0, is ignored.
        y_pred: logits [B, 1 + T, V], from a `NonAutoregressive` model.

    Returns:
        A scalar, in nats per label. A batch without labels gives 0.

    Example, 7 ids of equal probability:
        >>> loss = LengthCrossEntropy(smoothing=0.1)
        >>> round(float(loss([[5, 3, 0]], keras.ops.zeros((1, 3, 7)))), 4)
        1.9459
    """

    def __init__(
        self,
        smoothing: float = 0.1,
        r_drop: float = 0.0,
        name: str = "length_cross_entropy",
        **kwargs: Any,
    ) -> None:
        super().__init__(smoothing, r_drop, name, **kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """The loss of each label, float32 [B, 1 + T]."""
        tokens = super().call(y_true[:, 1:], y_pred[:, 1:])
        # Unsmoothed, because smoothing would give probability to ids that are not lengths.
        labels, logits = flattened(y_true[:, :1], y_pred[:, :1])
        lengths = smoothed_cross_entropy(labels, logits, smoothing=0.0)
        return ops.concatenate([lengths[:, None], tokens], axis=1)


@keras.saving.register_keras_serializable("tfformer")
class LabelCrossEntropy(SmoothedCrossEntropy):
    """`SmoothedCrossEntropy` for labels 1 to C. Label n is column n - 1 of the logits; 0 means no
    label.

    Args:
        smoothing, r_drop: see `SmoothedCrossEntropy`.
        weights: C numbers, one for each label, larger for rare labels. Default: 1 each. The loss is
            divided by the number of labels, not by the sum of their weights.

    Call arguments:
        y_true: integers of any shape, in [0, C]; 0 is ignored, and any number outside makes the
            loss NaN.
        y_pred: logits [..., C].
        sample_weight: see `SmoothedCrossEntropy`.

    Returns:
        A scalar, in nats per label. A batch without labels gives 0.

    Raises:
        ValueError: as `SmoothedCrossEntropy`.

    Example, log 3, for 3 labels of equal probability:
        >>> loss = LabelCrossEntropy(smoothing=0.1)
        >>> round(float(loss([[2], [0]], keras.ops.zeros((2, 3)))), 4)
        1.0986
    """

    def __init__(
        self,
        smoothing: float = 0.1,
        r_drop: float = 0.0,
        weights: Iterable[float] | None = None,
        name: str = "label_cross_entropy",
        **kwargs: Any,
    ) -> None:
        super().__init__(smoothing, r_drop, name, **kwargs)
        self.weights = None if weights is None else [float(weight) for weight in weights]

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """The loss of each label, float32, in the shape of `y_true`."""
        columns = label_columns(y_true)
        loss = super().call(columns, y_pred)
        if self.weights is None:
            return loss
        weights = ops.convert_to_tensor(self.weights, dtype="float32")
        return loss * ops.take(weights, within(columns, len(self.weights)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weights": self.weights}


def label_columns(labels):
    """The column of each label in its logits, int32. Label 0, no label, gives the first column."""
    labels = ops.cast(labels, "int32")
    return ops.where(ops.equal(labels, PAD), 0, labels - 1)


@keras.saving.register_keras_serializable("tfformer")
class PositionCrossEntropy(SmoothedCrossEntropy):
    """`SmoothedCrossEntropy` for positions in rows of any length, some of them impossible.

    Args:
        smoothing: see `SmoothedCrossEntropy`; it is spread over the possible positions.

    Call arguments:
        y_true: integers [..., ], positions. 0 means no label; a number outside makes the loss NaN.
        y_pred: logits [..., S]; -1e9 marks an impossible position.
        sample_weight: see `SmoothedCrossEntropy`.

    Returns:
        A scalar, in nats per label. A batch without labels gives 0.

    Raises:
        ValueError: as `SmoothedCrossEntropy`.

    Example, log 3, for three equal positions:
        >>> loss = PositionCrossEntropy(0.0)
        >>> round(float(loss([[2]], [[[-1e9, 5.0, 5.0, 5.0]]])), 4)
        1.0986
    """

    def __init__(
        self,
        smoothing: float = 0.1,
        r_drop: float = 0.0,
        name: str = "place_cross_entropy",
        **kwargs: Any,
    ) -> None:
        super().__init__(smoothing, r_drop, name, **kwargs)
        if r_drop:
            raise ValueError(f"r_drop must be 0 for places, got {r_drop}")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """The loss of each label, float32, in the shape of `y_true`."""
        logits = ops.cast(y_pred, "float32")
        total = ops.logsumexp(logits, axis=-1)
        loss = total - (1 - self.smoothing) * place_logits(y_true, logits)
        if not self.smoothing:
            return loss
        possible = logits > IMPOSSIBLE / 2
        count = ops.maximum(ops.sum(ops.cast(possible, "float32"), axis=-1), 1.0)
        mean = ops.sum(ops.where(possible, logits, 0.0), axis=-1) / count
        return loss - self.smoothing * mean


def place_logits(places, logits):
    """The logit at each position: integers [...], float32 [..., S]; NaN for a number outside."""
    places, size = ops.cast(places, "int32"), ops.shape(logits)[-1]
    inside = ops.clip(places, 0, size - 1)
    found = ops.take_along_axis(logits, ops.expand_dims(inside, -1), axis=-1)  # [..., 1]
    found = ops.squeeze(found, -1)  # [...]
    return ops.where(ops.equal(places, inside), found, float("nan"))
