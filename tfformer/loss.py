"""What training minimises and watches: label-smoothed cross-entropy and token accuracy."""

import keras
from keras import ops

from tfformer.config import PAD


def _token_weights(labels, sample_weight=None):
    """1 at the real tokens of labels [B, T], 0 at padding; times `sample_weight`, if any."""
    weights = ops.cast(ops.not_equal(labels, PAD), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    while len(sample_weight.shape) < len(weights.shape):
        sample_weight = sample_weight[..., None]
    return weights * sample_weight


def _over_replicas(count):
    """A number summed over the replicas of a `tf.distribute` strategy; elsewhere as it is."""
    if keras.backend.backend() != "tensorflow":
        return count
    from tfformer.replicas import total

    return total(count)


def label_logits(labels, logits):
    """The logit of each label: integers [B, T] and logits [B, T, V] give [B, T].

    The gather runs over the flattened logits: `ops.take_along_axis` costs three times as much.
    """
    size = logits.shape[-1]
    flat = ops.reshape(logits, (-1,))
    labels = ops.cast(ops.reshape(labels, (-1,)), "int32")
    rows = ops.arange(ops.shape(labels)[0], dtype="int32") * size
    return ops.reshape(ops.take(flat, rows + labels), ops.shape(logits)[:-1])


@keras.saving.register_keras_serializable("tfformer")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy against (1 - a) onehot(y) + a / V, the mean over the real tokens of a batch.

    -sum_v q_v log p_v with q = (1 - a) onehot(y) + a / V  (Szegedy et al. 2016; section 5.4 of
    Vaswani et al. 2017 with a = 0.1). Since log p = z - logsumexp(z), this is

        logsumexp(z) - (1 - a) z_y - a mean(z),

    two reductions and one gather: no one-hot [B, T, V] is ever made.

    Under a `tf.distribute` strategy the batch is that of all replicas: each gives its part of the
    sum, divided by the tokens of all, and Keras adds up their gradients.

    Args:
        smoothing: a, in [0, 1). Default 0.1.

    Call arguments:
        y_true: integers [B, T]; padding (id 0) counts nothing.
        y_pred: logits [B, T, V]; computed in float32 whatever their dtype.
        sample_weight: optional [B] or [B, T], a weight for each row or token.

    Returns:
        A scalar, in nats a token. A batch without tokens gives 0.
    """

    def __init__(self, smoothing=0.1, name="smoothed_cross_entropy", **kwargs):
        # A mean over tokens is no mean over rows: the reduction is this class's own.
        kwargs["reduction"] = "none"
        super().__init__(name=name, **kwargs)
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be in [0, 1), got smoothing={smoothing}")
        self.smoothing = smoothing

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = ops.cast(y_true, "int32")
        weights = _token_weights(y_true, sample_weight)
        total = ops.sum(self.call(y_true, y_pred) * weights)
        return total / ops.maximum(_over_replicas(ops.sum(weights)), 1e-9)

    def call(self, y_true, y_pred):
        """The loss of each token, float32 [B, T]."""
        logits = ops.cast(y_pred, "float32")
        loss = ops.logsumexp(logits, axis=-1)
        loss = loss - (1 - self.smoothing) * label_logits(y_true, logits)
        if self.smoothing:
            loss = loss - self.smoothing * ops.mean(logits, axis=-1)
        return loss

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype, "smoothing": self.smoothing}


@keras.saving.register_keras_serializable("tfformer")
class TokenAccuracy(keras.metrics.Metric):
    """The share of real tokens whose label has the largest logit, over all batches seen.

    Call arguments of `update_state`:
        y_true: integers [B, T]; padding (id 0) is not counted.
        y_pred: logits [B, T, V].
        sample_weight: optional [B] or [B, T].
    """

    def __init__(self, name="accuracy", **kwargs):
        super().__init__(name=name, **kwargs)
        self.correct = self.add_variable((), "zeros", name="correct")
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.cast(y_true, "int32")
        weights = _token_weights(y_true, sample_weight)
        largest = ops.equal(label_logits(y_true, y_pred), ops.max(y_pred, axis=-1))
        hits = ops.cast(largest, "float32")
        self.correct.assign_add(ops.sum(hits * weights))
        self.total.assign_add(ops.sum(weights))

    def result(self):
        return self.correct / ops.maximum(self.total, 1e-9)


@keras.saving.register_keras_serializable("tfformer")
class Perplexity(keras.metrics.Metric):
    """exp(total negative log-likelihood / total real tokens), over all batches seen, unsmoothed.

    Call arguments of `update_state`: those of `TokenAccuracy`.
    """

    def __init__(self, name="perplexity", **kwargs):
        super().__init__(name=name, **kwargs)
        self.nll = self.add_variable((), "zeros", name="nll")
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.cast(y_true, "int32")
        weights = _token_weights(y_true, sample_weight)
        logits = ops.cast(y_pred, "float32")
        nll = ops.logsumexp(logits, axis=-1) - label_logits(y_true, logits)
        self.nll.assign_add(ops.sum(nll * weights))
        self.total.assign_add(ops.sum(weights))

    def result(self):
        return ops.exp(self.nll / ops.maximum(self.total, 1e-9))
