"""What training minimises: label-smoothed cross-entropy."""

import math
import numbers

import keras
from keras import ops

from tfformer.backend.gradients import upstream_gradient
from tfformer.config import PAD

IMPOSSIBLE = -1e9  # a logit whose softmax is 0


def token_weights(labels, sample_weight=None):
    """1 at the real tokens of labels [B, T], 0 at padding; times `sample_weight`, if any."""
    weights = ops.cast(ops.not_equal(labels, PAD), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    if getattr(sample_weight.shape, "rank", 0) is None:
        # Of steps with [B] and with [B, T], TensorFlow makes one graph without a rank.
        sample_weight = ops.reshape(sample_weight, (ops.shape(labels)[0], -1))  # [B, 1] or [B, T]
    while len(sample_weight.shape) < len(weights.shape):
        sample_weight = sample_weight[..., None]
    return weights * sample_weight


def _size(shape):
    """How many numbers a tensor of this shape has; None where that is not known."""
    if getattr(shape, "rank", 0) is None or None in tuple(shape):
        return None
    return math.prod(shape)


def flattened(labels, logits):
    """Labels [...] and logits [..., V] as int32 [N] and float32 [N, V]; a ValueError where they
    are not as many.

    Loss and metrics all begin with these, so that a compiler makes them once.
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
    """A number summed over the replicas of a `tf.distribute` strategy; elsewhere as it is."""
    if keras.backend.backend() != "tensorflow":
        return count
    from tfformer.backend.replicas import total

    return total(count)


def label_logits(labels, logits):
    """The logit of each label: integers [B, T] and logits [B, T, V] give [B, T].

    NaN for what is no id: a graph cannot raise on every device, and a neighbour's logit would go
    unnoticed. The gather runs over the flattened logits: `ops.take_along_axis` costs three times as
    much.
    """
    size = logits.shape[-1]
    flat = ops.reshape(logits, (-1,))  # [N V]
    labels = ops.cast(ops.reshape(labels, (-1,)), "int32")  # [N]
    rows = ops.arange(ops.shape(labels)[0], dtype="int32") * size
    found = ops.take(flat, rows + within(labels, size))  # [N]
    found = ops.where(ops.equal(labels, within(labels, size)), found, float("nan"))
    return ops.reshape(found, ops.shape(logits)[:-1])  # [B, T]


def within(labels, size):
    """The labels as ids of a vocabulary of this size; what is none becomes the nearest."""
    return ops.clip(labels, 0, size - 1)


def normalised(logits):
    """p = softmax(z) and log sum exp(z), which is max z - log max p: [N, V], [N].

    Loss and metrics all begin with these, so that a compiler computes them once. A softmax is one
    operation of the processor's library, where exp, its sum and the quotient pass over [N, V] each.
    """
    p = ops.softmax(logits, axis=-1)
    return p, ops.max(logits, axis=-1) - ops.log(ops.max(p, axis=-1))


def smoothed_cross_entropy(labels, logits, smoothing=0.1):
    """-sum_v q_v log p_v with q = (1 - a) onehot(y) + a / V, of each token.

    Its gradient is written out, p - q: one pass over [N, V] from what the forward pass has computed
    anyway. Differentiated term by term, the mean and the gather would fill another [N, V] each.

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

    With d = z_p - z_q, the difference of the logits, it is (E_p[d] - E_q[d]) / 2: what normalises
    the two falls out. The gradient is written out, too, (p (d - E_p[d]) + p - q) / 2 of the logits
    of p and (q (E_q[d] - d) + q - p) / 2 of those of q.

    Args:
        logits: float32 [2 N, V], those of p and after them those of q.

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
    """The base of losses whose `call` gives the loss of each label; the loss is their mean over the
    real labels of a batch, and under a `tf.distribute` strategy over those of all replicas."""

    def __init__(self, name, **kwargs):
        # A mean over labels is no mean over rows: the reduction is this class's own.
        super().__init__(name=name, **{**kwargs, "reduction": "none"})

    def __call__(self, y_true, y_pred, sample_weight=None):
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

    a softmax, reductions and one gather: no one-hot [B, T, V] is ever made.

    Under a `tf.distribute` strategy the batch is that of all replicas: each gives its part of the
    sum, divided by the tokens of all, and Keras adds up their gradients.

    Args:
        smoothing: a, in [0, 1). Default 0.1.
        r_drop: the weight alpha of R-Drop (Liang et al. 2021, equation 4, halved like the two
            cross-entropies of which this is the mean): with it a batch holds its rows twice, one
            half after the other, and for what differs between the two predictions of a token,
            which dropout alone makes differ, alpha / 2 times their symmetric divergence is added.
            Default 0: none, and rows stand once.

    Call arguments:
        y_true: integers [B, T] (or of any other shape), ids of the vocabulary. Padding, id 0,
            counts nothing, and 0 alone: any other number that is no id (-1, -100, V) makes the
            loss NaN, and its gradient, also with a weight of 0.
        y_pred: logits [B, T, V]; computed in float32 whatever their dtype.
        sample_weight: optional [B] or [B, T], a weight for each row or token.

    Returns:
        A scalar, in nats a token. A batch without tokens gives 0.

    Raises:
        ValueError: `smoothing` is not in [0, 1), or `r_drop` no number of at least 0; in a call,
            there are not as many labels as logits.
        TypeError: an argument that there is not, such as `from_logits`.

    Example, log 7, for 7 ids of which each is as likely:
        >>> loss = SmoothedCrossEntropy(smoothing=0.1)
        >>> round(float(loss([[5, 3, 0]], keras.ops.zeros((1, 3, 7)))), 4)
        1.9459
    """

    # Arguments of Keras's cross-entropies, and what to give in their place.
    MEANT = {
        "from_logits": "y_pred are always logits",
        "label_smoothing": "give smoothing",
        "ignore_class": "padding, id 0, always counts nothing",
    }

    def __init__(self, smoothing=0.1, r_drop=0.0, name="smoothed_cross_entropy", **kwargs):
        for other in self.MEANT.keys() & kwargs.keys():
            hint = self.MEANT[other]
            raise TypeError(f"{type(self).__name__} has no argument {other}: {hint}")
        super().__init__(name, **kwargs)
        if not isinstance(smoothing, numbers.Real) or not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be in [0, 1), got smoothing={smoothing!r}")
        if not isinstance(r_drop, numbers.Real) or not r_drop >= 0:
            raise ValueError(f"r_drop must be at least 0, got r_drop={r_drop!r}")
        self.smoothing, self.r_drop = smoothing, r_drop

    def call(self, y_true, y_pred):
        """The loss of each token, float32, of the shape of `y_true`."""
        labels, logits = flattened(y_true, y_pred)
        loss = self.of_tokens(labels, logits)
        if self.r_drop:
            loss = loss + self.r_drop / 2 * ops.tile(symmetric_divergence(logits), (2,))
        return ops.reshape(loss, ops.shape(y_true))  # [B, T]

    def of_tokens(self, labels, logits):
        """The loss of int32 [N] and float32 [N, V]: float32 [N], in nats."""
        return smoothed_cross_entropy(labels, logits, self.smoothing)

    def get_config(self):
        return {
            "name": self.name,
            "dtype": self.dtype,
            "smoothing": self.smoothing,
            "r_drop": self.r_drop,
        }


@keras.saving.register_keras_serializable("tfformer")
class LengthCrossEntropy(SmoothedCrossEntropy):
    """The loss of mask-predict: smoothed cross-entropy of the tokens, and cross-entropy, which is
    not smoothed, of the length of the target.

    Args:
        smoothing, r_drop: of the tokens, see `SmoothedCrossEntropy`.

    Call arguments:
        y_true: integers [B, 1 + T], the id of the length, and ids of the vocabulary. Padding, id
            0, counts nothing.
        y_pred: logits [B, 1 + T, V], as a `NonAutoregressive` model gives them.

    Returns:
        A scalar, in nats a label. A batch without labels gives 0.

    Example, 7 ids of which each is as likely:
        >>> loss = LengthCrossEntropy(smoothing=0.1)
        >>> round(float(loss([[5, 3, 0]], keras.ops.zeros((1, 3, 7)))), 4)
        1.9459
    """

    def __init__(self, smoothing=0.1, r_drop=0.0, name="length_cross_entropy", **kwargs):
        super().__init__(smoothing, r_drop, name, **kwargs)

    def call(self, y_true, y_pred):
        """The loss of each label, float32 [B, 1 + T]."""
        tokens = super().call(y_true[:, 1:], y_pred[:, 1:])
        # Smoothing would ask for lengths that are none.
        lengths = smoothed_cross_entropy(*flattened(y_true[:, :1], y_pred[:, :1]), smoothing=0.0)
        return ops.concatenate([lengths[:, None], tokens], axis=1)


@keras.saving.register_keras_serializable("tfformer")
class LabelCrossEntropy(SmoothedCrossEntropy):
    """`SmoothedCrossEntropy` of labels that are no ids: 1 to C, of which label n is column n - 1 of
    the logits, and 0 is none.

    Args:
        smoothing, r_drop: see `SmoothedCrossEntropy`.
        weights: of each label, C numbers, for labels that are rare. Default: 1 each. The mean is
            over the labels, and not over their weights.

    Call arguments:
        y_true: integers of any shape, in [0, C]; 0 counts nothing, and any other number makes the
            loss NaN.
        y_pred: logits [..., C].
        sample_weight: see `SmoothedCrossEntropy`.

    Returns:
        A scalar, in nats a label. A batch without labels gives 0.

    Raises:
        ValueError: as `SmoothedCrossEntropy`.

    Example, log 3, for 3 labels of which each is as likely:
        >>> loss = LabelCrossEntropy(smoothing=0.1)
        >>> round(float(loss([[2], [0]], keras.ops.zeros((2, 3)))), 4)
        1.0986
    """

    def __init__(
        self, smoothing=0.1, r_drop=0.0, weights=None, name="label_cross_entropy", **kwargs
    ):
        super().__init__(smoothing, r_drop, name, **kwargs)
        self.weights = None if weights is None else [float(weight) for weight in weights]

    def call(self, y_true, y_pred):
        """The loss of each label, float32, of the shape of `y_true`."""
        columns = label_columns(y_true)
        loss = super().call(columns, y_pred)
        if self.weights is None:
            return loss
        weights = ops.convert_to_tensor(self.weights, dtype="float32")
        return loss * ops.take(weights, within(columns, len(self.weights)))

    def get_config(self):
        return {**super().get_config(), "weights": self.weights}


def label_columns(labels):
    """The column of each label in its logits, int32; of none, the first."""
    labels = ops.cast(labels, "int32")
    return ops.where(ops.equal(labels, PAD), 0, labels - 1)


@keras.saving.register_keras_serializable("tfformer")
class PlaceCrossEntropy(SmoothedCrossEntropy):
    """`SmoothedCrossEntropy` of places: of rows of any length, in which some places are impossible.

    Args:
        smoothing: see `SmoothedCrossEntropy`; it is spread over the places that are possible.

    Call arguments:
        y_true: integers [..., ], places; 0 is none, and what is no place makes the loss NaN.
        y_pred: logits [..., S]; -1e9 is an impossible place.
        sample_weight: see `SmoothedCrossEntropy`.

    Returns:
        A scalar, in nats a label. A batch without labels gives 0.

    Raises:
        ValueError: as `SmoothedCrossEntropy`.

    Example, log 3, of three places that are alike:
        >>> loss = PlaceCrossEntropy(0.0)
        >>> round(float(loss([[2]], [[[-1e9, 5.0, 5.0, 5.0]]])), 4)
        1.0986
    """

    def __init__(self, smoothing=0.1, r_drop=0.0, name="place_cross_entropy", **kwargs):
        super().__init__(smoothing, r_drop, name, **kwargs)
        if r_drop:
            raise ValueError(f"r_drop must be 0 for places, got {r_drop}")

    def call(self, y_true, y_pred):
        """The loss of each label, float32, of the shape of `y_true`."""
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
    """The logit of each place: integers [...] and float32 [..., S]; NaN for what is none."""
    places, size = ops.cast(places, "int32"), ops.shape(logits)[-1]
    inside = ops.clip(places, 0, size - 1)
    found = ops.take_along_axis(logits, ops.expand_dims(inside, -1), axis=-1)  # [..., 1]
    found = ops.squeeze(found, -1)  # [...]
    return ops.where(ops.equal(places, inside), found, float("nan"))
