"""Normalisation layers: LayerNorm with an explicit gradient, and its alternatives.

LayerNorm computes the mean and the variance over the D features of one position, so no position
depends on another. (Notes often say "over the sentence".) BatchNorm computes them for each feature
over all tokens of a batch. In training its output therefore depends on the other sentences, on the
amount of padding, and on later words. In inference, where a batch may hold one sentence, it uses
averages that training has collected.
"""

import keras
from keras import ops

from tfformer.backend.gradients import upstream_gradient
from tfformer.config import number
from tfformer.layers.layer import Layer


@keras.saving.register_keras_serializable("tfformer")
class LayerNorm(keras.layers.LayerNormalization):
    """LayerNorm(x) = g * (x - mean) / sqrt(variance + 1e-6) + b  (Ba et al. 2016).

    The computation is in float32 even if the compute dtype is smaller. Training uses an explicit
    gradient. With n = (x - mean) / sqrt(variance + 1e-6) and d = g * upstream, the gradient of x is

        (d - mean(d) - n mean(n d)) / sqrt(variance + 1e-6).

    Automatic differentiation of each term takes 1.5 times as long.

    Args:
        epsilon: the number added to the variance. Default 1e-6.
        name, dtype, trainable: as for every Keras layer.

    Call arguments:
        x: [..., D].
        training: whether a gradient will be computed. Default: Keras decides.

    Returns:
        [..., D].
    """

    def __init__(self, epsilon=1e-6, *, name=None, dtype=None, trainable=True):
        super().__init__(epsilon=epsilon, name=name, dtype=dtype, trainable=trainable)

    def call(self, x, training=None):
        if not training:
            return super().call(x)
        dtype = keras.backend.result_type(x.dtype, "float32")

        @ops.custom_gradient
        def layer_norm(x, gain, bias):
            centred = ops.cast(x, dtype)
            centred = centred - ops.mean(centred, axis=-1, keepdims=True)
            variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
            scale = ops.rsqrt(variance + self.epsilon)
            normal = centred * scale

            def gradient(*args, upstream=None):
                upstream = ops.cast(upstream_gradient(args, upstream), dtype)
                product = upstream * normal
                over_rows = tuple(range(len(x.shape) - 1))
                d = upstream * gain
                d = d - ops.mean(d, axis=-1, keepdims=True)
                d = d - normal * ops.mean(product * gain, axis=-1, keepdims=True)
                return (
                    ops.cast(d * scale, x.dtype),
                    ops.sum(product, axis=over_rows),
                    ops.sum(upstream, axis=over_rows),
                )

            return ops.cast(normal * gain + bias, self.compute_dtype), gradient

        return layer_norm(x, ops.cast(self.gamma, dtype), ops.cast(self.beta, dtype))

    def get_config(self):
        config = super().get_config()
        return {name: config[name] for name in ("epsilon", "name", "dtype", "trainable")}


class Norm(Layer):
    """Base class of the norms below. It computes in float32 even if the compute dtype is smaller.

    Args:
        epsilon: the number added to the variance, or to the mean square. Default 1e-6.

    Call arguments:
        x: [..., D].

    Returns:
        [..., D].

    Raises:
        ValueError: `epsilon` is not in [0, 1).
        TypeError: an argument is unknown.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = number("epsilon", epsilon, 0, 1)
        self.supports_masking = True

    def call(self, x, training=None):
        dtype = keras.backend.result_type(x.dtype, "float32")
        return ops.cast(self.normed(ops.cast(x, dtype)), self.compute_dtype)

    def standardised(self, x):
        """(x - mean) / sqrt(variance + epsilon), over the D features of each position."""
        x = x - ops.mean(x, axis=-1, keepdims=True)
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + self.epsilon)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable("tfformer")
class SimpleNorm(Norm):
    """(x - mean) / sqrt(variance + 1e-6): LayerNorm without gain and bias. Xu et al. 2019
    ("Understanding and Improving Layer Normalization") call it LayerNorm-simple. No weights.

    Args, call arguments, returns, raises: see `Norm`.

    Example:
        >>> print(np.array(SimpleNorm()(np.array([[1.0, 3.0]]))).round(3))
        [[-1. 1.]]
    """

    def normed(self, x):
        return self.standardised(x)


@keras.saving.register_keras_serializable("tfformer")
class AdaNorm(Norm):
    """C (1 - k y) y with y = (x - mean) / sqrt(variance + 1e-6), k = 1/10 and C = 1 (Xu et al.
    2019, section 4). No weights. The gradient treats the factor of y as a constant.

    Args, call arguments, returns, raises: see `Norm`.

    Example:
        >>> print(np.array(AdaNorm()(np.array([[1.0, 3.0]]))).round(3))
        [[-1.1 0.9]]
    """

    K = 0.1

    def normed(self, x):
        y = self.standardised(x)
        return y * ops.stop_gradient(1 - self.K * y)


@keras.saving.register_keras_serializable("tfformer")
class RMSNorm(Norm):
    """g x / sqrt(mean(x^2) + 1e-6)  (Zhang and Sennrich 2019): LayerNorm without the mean and b.

    Args, call arguments, returns, raises: see `Norm`.

    Example:
        >>> print(np.array(RMSNorm()(np.array([[1.0, 7.0]]))).round(3))
        [[0.2 1.4]]
    """

    def build(self, x_shape):
        shape = {"shape": (x_shape[-1],), "autocast": False}
        self.gamma = self.add_weight(name="gamma", initializer="ones", **shape)

    def normed(self, x):
        mean = ops.mean(ops.square(x), axis=-1, keepdims=True)
        return x * ops.rsqrt(mean + self.epsilon) * ops.cast(self.gamma, x.dtype)


@keras.saving.register_keras_serializable("tfformer")
class BatchNorm(Norm):
    """g (x - mean) / sqrt(variance + 1e-6) + b, with a mean and a variance for each feature (Ioffe
    and Szegedy 2015).

    Training computes mean and variance over the real tokens of a batch. Inference uses moving
    averages; each training step moves them by 1 part in 100 towards the values of its batch.

    `keras.layers.BatchNormalization` computes the same, but accepts inputs of one rank only.

    Args:
        epsilon: the number added to the variance. Default 1e-6.

    Call arguments:
        x: [..., D].
        mask: boolean [...], True = token. Padding is ignored.
        training: whether mean and variance are those of `x`. Default: Keras decides. A layer
            that is not trainable always uses the moving averages.

    Returns:
        [..., D].

    Raises:
        ValueError: `epsilon` is not in [0, 1).
        TypeError: an argument is unknown.

    Example, with one feature, whose tokens are 1 and 3, and one position of padding:
        >>> norm = BatchNorm()
        >>> x, mask = np.array([[[1.0], [3.0], [9.0]]]), np.array([[True, True, False]])
        >>> print(np.array(norm(x, training=True, mask=mask)).round(3).ravel())
        [-1. 1. 7.]
    """

    KEPT = 0.99

    def build(self, x_shape):
        shape = {"shape": (x_shape[-1],), "autocast": False}
        self.gamma = self.add_weight(name="gamma", initializer="ones", **shape)
        self.beta = self.add_weight(name="beta", initializer="zeros", **shape)
        kept = {**shape, "trainable": False}
        self.moving_mean = self.add_weight(name="moving_mean", initializer="zeros", **kept)
        self.moving_variance = self.add_weight(name="moving_variance", initializer="ones", **kept)

    def call(self, x, mask=None, training=None):
        dtype = keras.backend.result_type(x.dtype, "float32")
        x = ops.cast(x, dtype)
        if training and self.trainable:
            mean, variance, count = self._moments(x, mask)
            # A batch without tokens leaves the moving averages as they are.
            taken = ops.cast(ops.minimum(count, 1), self.moving_mean.dtype) * (1 - self.KEPT)
            for kept, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
                kept.assign((1 - taken) * kept + taken * ops.cast(new, kept.dtype))
        else:
            mean, variance = (ops.cast(v, dtype) for v in (self.moving_mean, self.moving_variance))
        scale = ops.rsqrt(variance + self.epsilon) * ops.cast(self.gamma, dtype)
        return ops.cast((x - mean) * scale + ops.cast(self.beta, dtype), self.compute_dtype)

    @staticmethod
    def _moments(x, mask):
        """The mean and the variance of each feature over the tokens of x, [D] each, and the number
        of tokens."""
        axes = tuple(range(len(x.shape) - 1))
        tokens = ops.ones_like(x[..., :1])  # [..., 1]
        if mask is not None:
            tokens = tokens * ops.expand_dims(ops.cast(mask, x.dtype), -1)  # [..., 1]
        count = ops.sum(tokens)
        mean = ops.sum(x * tokens, axis=axes) / ops.maximum(count, 1)
        variance = ops.sum(ops.square(x - mean) * tokens, axis=axes) / ops.maximum(count, 1)
        return mean, variance, count


KINDS = {
    "layer": LayerNorm,
    "simple": SimpleNorm,
    "ada": AdaNorm,
    "rms": RMSNorm,
    "batch": BatchNorm,
}


def norm_of(normalization, epsilon, **common):
    """Make the norm of this name; `common` are arguments of every Keras layer.

    Raises:
        ValueError: `normalization` is unknown.
    """
    if normalization not in KINDS:
        raise ValueError(f"normalization must be one of {tuple(KINDS)}, got {normalization!r}")
    return KINDS[normalization](epsilon, **common)


def of_embeddings(options, **common):
    """Make the norm after the embeddings for a configuration's `NumberedOptions`; None without one.
    `common` are arguments of every Keras layer."""
    if not options.embedding_norm:
        return None
    return norm_of(options.normalization, options.epsilon, **common)


def normed(norm, x, rows=None, training=None):
    """Apply a norm to x, whose layout is `rows`; None changes nothing. Only BatchNorm needs to know
    the tokens."""
    if norm is None:
        return x
    if isinstance(norm, BatchNorm) and rows is not None:
        return norm(x, mask=rows.tokens(), training=training)
    return norm(x, training=training)
