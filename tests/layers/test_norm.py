"""LayerNorm: Keras's in what it gives, and in the gradient that it writes out."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from paths import ROOT

from tfformer.layers.norm import LayerNorm


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


def test_xla_compiles_its_gradient(rng):
    ours, _ = pair(rng, "float32")
    x, upstream = (tf.constant(rng.normal(size=(7, 11)), "float32") for _ in range(2))
    expected = gradients(ours, x, upstream)
    compiled = tf.function(lambda *args: gradients(ours, *args), jit_compile=True)(x, upstream)
    for a, b in zip(compiled, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_of_every_layer_it_takes_what_it_can_keep_to():
    layer = LayerNorm(epsilon=1e-3, dtype="mixed_bfloat16", name="norm")
    copy = LayerNorm.from_config(layer.get_config())
    assert (copy.epsilon, copy.name, copy.compute_dtype) == (1e-3, "norm", "bfloat16")
    with pytest.raises(TypeError, match="axis"):
        LayerNorm(axis=1)


ON_JAX = """
import jax, keras, numpy as np
from tfformer.layers.norm import LayerNorm

rng = np.random.default_rng(5)
x, upstream = rng.normal(size=(2, 3, 5, 11)).astype("float32")
layers, found = [LayerNorm(), keras.layers.LayerNormalization(epsilon=1e-6)], []
weights = rng.normal(size=(2, 11))
for layer, training in zip(layers, ({"training": True}, {})):
    layer.build((None, 11))
    layer.set_weights(weights)
    def loss(weights, x):
        return (layer.stateless_call(weights, [], x, **training)[0] * upstream).sum()
    values = [variable.value for variable in layer.trainable_variables]
    found.append(jax.tree.leaves(jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(values, x)))
for mine, theirs in zip(*found, strict=True):
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
assert len(found[0]) == 4
"""


def test_its_gradient_is_the_same_on_jax():
    pytest.importorskip("jax")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [sys.executable, "-c", ON_JAX],
        cwd=ROOT,
        env=environment,
        check=True,
    )
