"""The inference layer of the feed-forward layer."""

import tensorflow as tf

from tfformer.inference.dense import columns, padded_columns, product, side_by_side
from tfformer.layers import feed_forward


def gelu(x):
    return tf.nn.gelu(x, approximate=False)


def gelu_tanh(x):
    return tf.nn.gelu(x, approximate=True)


def gated(activation):
    """A function of x: activation(x_1) * x_2, where x_1 and x_2 are the two halves of x."""

    def product_of_halves(x):
        hidden, gate = tf.split(x, 2, axis=-1)
        return activation(hidden) * gate

    return product_of_halves


ACTIVATIONS = {
    "relu": tf.nn.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": tf.nn.silu,
    "swiglu": gated(tf.nn.silu),
    "geglu": gated(gelu_tanh),
}


class FeedForward:
    """act(x W_1 + b_1) W_2 + b_2. One product computes W_1 and the gate.

    The inner width may have extra columns, which W_2 multiplies by rows of zeros.
    """

    def __init__(self, layer, name, fusing):
        self.name, self.size = name, layer.d_model
        self.activation = ACTIVATIONS[layer.activation]
        first = [layer.inner, layer.gate] if layer.gated else [layer.inner]
        parts = [
            [padded_columns(tf.cast(x, fusing.dtype), len(first)) for x in side_by_side([part])]
            for part in first
        ]
        kernel, bias = (tf.concat(pair, axis=-1) for pair in zip(*parts, strict=True))
        outer, outer_bias = (
            padded_columns(tf.cast(x, fusing.dtype)) for x in side_by_side([layer.outer])
        )
        missing = kernel.shape[1] // len(first) - outer.shape[0]
        fusing.weights[name] = {
            "inner": {"kernel": kernel, "bias": bias},
            "outer": {"kernel": tf.pad(outer, [[0, missing], [0, 0]]), "bias": outer_bias},
        }

    def __call__(self, weights, x):
        """Rows [R, D] -> [R, D]."""
        own = weights[self.name]
        hidden = self.activation(product(x, own["inner"]))
        return columns(product(hidden, own["outer"]), self.size)


INFERENCE_LAYERS = {feed_forward.FeedForward: FeedForward}
