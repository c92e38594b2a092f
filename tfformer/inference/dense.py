"""Combines several Keras Dense layers with one input into one product: x W + b."""

import tensorflow as tf

from tfformer.inference import int8
from tfformer.inference.low_latency import multiplied
from tfformer.layers.weight_matrices import float_bias, float_matrix


class Dense:
    """Several Dense layers, computed side by side.

    Args:
        layers: Keras layers with the same input.
        name: the name in the weights.
        fusing: a `Fusing`.
        scales: a factor for each layer's output. Default: 1.
    """

    def __init__(self, layers, name, fusing, scales=None):
        self.name = name
        kernel, bias = side_by_side(layers, scales)
        self.size = kernel.shape[-1]
        weights = {"kernel": tf.cast(kernel, fusing.dtype), "bias": tf.cast(bias, fusing.dtype)}
        fusing.weights[name] = {key: padded_columns(weight) for key, weight in weights.items()}

    def __call__(self, weights, x):
        """Rows [R, D] -> [R, sum of the layers' units]."""
        return columns(product(x, weights[self.name]), self.size)


def product(x, weights):
    """x W + b, with all columns."""
    if "int8" in weights:
        return int8.product(x, weights) + weights["bias"]
    return tf.nn.bias_add(tf.matmul(x, multiplied(weights)), weights["bias"])


def side_by_side(layers, scales=None):
    """Kernel [D, N] and bias [N] of several layers, float32.

    A layer without a bias gets zeros: TensorFlow fuses a product with its bias, and `low_latency`
    keeps a reordered matrix only for such a product.
    """
    pairs = list(zip(layers, scales or [1.0] * len(layers), strict=True))
    kernels = [float_matrix(layer) * scale for layer, scale in pairs]
    biases = [float_bias(layer) * scale for layer, scale in pairs]
    return tf.concat(kernels, axis=1), tf.concat(biases, axis=0)


def stored_columns(size, parts=1):
    """The number of columns with which to store each of `parts` matrices of `size` columns.

    If rows are a multiple of 512 float32 apart, 2 KiB, they share the sets of a processor's cache.
    Such a product takes up to twice as long: 46 instead of 95 GFLOP/s, for 64 rows times
    [256, 1024].
    """
    return size + 16 if size * parts % 512 == 0 else size


def padded_columns(kernel, parts=1):
    """A kernel [..., N], or a bias [N], with columns of zeros up to `stored_columns`."""
    size = kernel.shape[-1]
    more = stored_columns(size, parts) - size
    return tf.pad(kernel, [[0, 0]] * (kernel.shape.rank - 1) + [[0, more]])


def columns(x, size):
    """The first `size` columns of x [R, N]."""
    return x if size == x.shape[1] else x[:, :size]
