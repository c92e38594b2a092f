"""LayerNorm: Keras's in what it gives, and in the gradient that it writes out."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfformer.layers.layer_norm import LayerNorm


def pair(rng, dtype, d=11):
    """Ours and Keras's, of the same weights."""
    layers = LayerNorm(dtype=dtype), keras.layers.LayerNormalization(epsilon=1e-6, dtype=dtype)
    weights = rng.normal(size=(2, d))
    for layer in layers:
        layer.build((None, d))
        layer.set_weights(weights)
    return layers


def gradients(layer, x, upstream, training=True):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=training) if training is not None else layer(x)
    sources = [x, *(variable.value for variable in layer.trainable_variables)]
    return y, *tape.gradient(y, sources, output_gradients=upstream)


def test_it_is_the_formula(rng):
    layer, _ = pair(rng, "float64")
    x = rng.normal(size=(5, 7, 11))
    gain, bias = layer.get_weights()
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    for training in (False, True):
        y = layer(x, training=training)
        np.testing.assert_allclose(y, normal * gain + bias, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-5)])
@pytest.mark.parametrize("shape", [(7,), (3, 5)])
def test_its_gradient_is_that_of_its_terms(rng, dtype, tolerance, shape):
    ours, keras_layer = pair(rng, dtype)
    x, upstream = (tf.constant(3 + rng.normal(size=(*shape, 11)), dtype) for _ in range(2))
    expected = gradients(keras_layer, x, upstream, training=None)
    for mine, theirs in zip(gradients(ours, x, upstream), expected, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_computed_in_float32(rng, dtype):
    ours, keras_layer = pair(rng, dtype, d=127)
    half = dtype.removeprefix("mixed_")
    x, upstream = (tf.cast(300 + rng.normal(size=(5, 127)), half) for _ in range(2))
    expected = gradients(keras_layer, x, upstream, training=None)
    for mine, theirs in zip(gradients(ours, x, upstream), expected, strict=True):
        assert mine.dtype == theirs.dtype
        mine, theirs = (tf.cast(value, "float32").numpy() for value in (mine, theirs))
        # One rounding at the end.
        np.testing.assert_allclose(mine, theirs, rtol=2**-7, atol=2**-7 * np.abs(theirs).max())
