"""LayerNorm has the output and the gradient of Keras's layer."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from paths import ROOT

from tfformer import EncoderLayer
from tfformer.layers.norm import AdaNorm, BatchNorm, LayerNorm, RMSNorm, SimpleNorm, norm_of
from tfformer.layers.packing import Packed


def pair(rng, dtype, d=11):
    """Our layer and Keras's, with the same weights."""
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


def test_layer_norm_equals_the_formula(rng):
    layer, _ = pair(rng, "float64")
    x = rng.normal(size=(5, 7, 11))
    gain, bias = layer.get_weights()
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    for training in (False, True):
        y = layer(x, training=training)
        np.testing.assert_allclose(y, normal * gain + bias, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 2e-5)])
@pytest.mark.parametrize("shape", [(7,), (3, 5)])
def test_gradient_equals_keras_layer_norm(rng, dtype, tolerance, shape):
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


@pytest.mark.slow
def test_xla_gradient_equals_the_eager_gradient(rng):
    ours, _ = pair(rng, "float32")
    x, upstream = (tf.constant(rng.normal(size=(7, 11)), "float32") for _ in range(2))
    expected = gradients(ours, x, upstream)
    compiled = tf.function(lambda *args: gradients(ours, *args), jit_compile=True)(x, upstream)
    for a, b in zip(compiled, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_layer_norm_keeps_keras_arguments_and_refuses_axis():
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


@pytest.mark.slow
def test_gradient_is_the_same_on_jax():
    pytest.importorskip("jax")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [sys.executable, "-c", ON_JAX],
        cwd=ROOT,
        env=environment,
        check=True,
    )


# Other norms.


def test_simple_ada_and_rms_norm_equal_their_formulas(rng):
    x = 2 + rng.normal(size=(5, 7, 11))
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    rms = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
    for kind, expected in ((SimpleNorm, y), (AdaNorm, (1 - y / 10) * y), (RMSNorm, rms)):
        np.testing.assert_allclose(kind(1e-3, dtype="float64")(x), expected, rtol=1e-9, atol=1e-9)


def test_adanorm_gradient_treats_its_factor_as_constant(rng):
    """Xu et al. 2019: the factor of y counts as a constant in the gradient."""
    x = tf.constant(rng.normal(size=(5, 11)))
    simple, ada = SimpleNorm(dtype="float64"), AdaNorm(dtype="float64")
    upstream = tf.constant(rng.normal(size=(5, 11)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, z = simple(x), ada(x)
    expected = tape.gradient(y, x, output_gradients=upstream * (1 - y / 10))
    np.testing.assert_allclose(tape.gradient(z, x, output_gradients=upstream), expected, atol=1e-12)


def test_batchnorm_normalizes_each_feature_over_the_tokens(rng):
    x, mask = rng.normal(size=(5, 7, 11)), rng.random((5, 7)) < 0.6
    layer = BatchNorm(dtype="float64")
    tokens = x[mask]
    expected = (x - tokens.mean(0)) / np.sqrt(tokens.var(0) + 1e-6)
    np.testing.assert_allclose(layer(x, mask=mask, training=True), expected, atol=1e-9)
    np.testing.assert_allclose(layer.moving_mean, 0.01 * tokens.mean(0), atol=1e-9)
    np.testing.assert_allclose(layer.moving_variance, 0.99 + 0.01 * tokens.var(0), atol=1e-9)
    kept = (x - layer.moving_mean) / np.sqrt(layer.moving_variance + 1e-6)
    np.testing.assert_allclose(layer(x, mask=mask), kept, atol=1e-9)
    # Without a mask it equals Keras's.
    keras_layer = keras.layers.BatchNormalization(epsilon=1e-6, dtype="float64")
    expected = keras_layer(x, training=True)
    np.testing.assert_allclose(BatchNorm(dtype="float64")(x, training=True), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["batch", "layer"])
def test_only_batchnorm_depends_on_other_sentences(kind, rng):
    """So in training it also sees later words: it is no norm for a decoder."""
    x = rng.normal(size=(3, 5, 14)).astype("float32")
    layer = EncoderLayer(14, 2, 11, dropout=0.0, normalization=kind)
    y = layer(x, training=True).numpy()
    changed = x.copy()
    changed[1:] += rng.normal(size=(2, 5, 14))
    other = layer(changed, training=True).numpy()
    assert (np.abs(other[0] - y[0]).max() > 1e-2) == (kind == "batch")


def test_batchnorm_of_packed_rows_equals_padded_rows(rng):
    x, mask = rng.normal(size=(3, 5, 14)).astype("float32"), np.ones((3, 5), bool)
    mask[1, 2:] = mask[2, 4:] = False
    padded, packed = (EncoderLayer(14, 2, 11, dropout=0.0, normalization="batch") for _ in "ab")
    y = padded(x, mask=mask, training=True).numpy()
    packed.build((None, None, 14))
    packed.set_weights(
        [
            w if "moving" not in v.path else {"moving_mean": 0 * w}.get(v.name, 0 * w + 1)
            for v, w in zip(padded.weights, padded.get_weights(), strict=True)
        ]
    )
    # Padding may come after the tokens.
    places = np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)])
    rows = packed(x.reshape(-1, 14)[places], training=True, rows=Packed(places, mask)).numpy()
    count = mask.sum()
    np.testing.assert_allclose(rows[:count], y[mask], atol=1e-5)
    for mine, theirs in zip(
        packed.non_trainable_variables, padded.non_trainable_variables, strict=True
    ):
        if "moving" in mine.path:
            np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("kind", [SimpleNorm, AdaNorm, RMSNorm, BatchNorm])
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_other_norms_in_half_precision_are_computed_in_float32(kind, policy, rng):
    x = tf.cast(300 + rng.normal(size=(5, 127)), policy.removeprefix("mixed_"))
    expected = kind()(tf.cast(x, tf.float32), training=True)
    y = kind(dtype=policy)(x, training=True)
    assert y.dtype == policy.removeprefix("mixed_")
    np.testing.assert_allclose(tf.cast(y, tf.float32), expected, atol=0.03)


def test_unknown_normalization_is_refused():
    with pytest.raises(ValueError, match="normalization must be one of .* got 'group'"):
        norm_of("group", 1e-6)
    with pytest.raises(ValueError, match="normalization must be one of .* got 'group'"):
        EncoderLayer(14, 2, 11, normalization="group")


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_averages_of_batchnorm_are_kept_in_float32(policy, rng):
    """Half precision would lose most of an update of 1 in 100."""
    x = rng.normal(2, 3, size=(64, 5)).astype("float32")
    model = keras.Sequential([keras.Input((5,)), BatchNorm(dtype=policy)])
    for _ in range(300):
        model(x, training=True)
    (layer,) = model.layers
    half = tf.cast(x, policy.removeprefix("mixed_"))
    np.testing.assert_allclose(
        layer.moving_mean, np.mean(half, 0, "float64") * (1 - 0.99**300), rtol=0.02
    )
    np.testing.assert_allclose(layer.moving_variance, np.var(x, axis=0), rtol=0.08)


def test_empty_batch_or_frozen_layer_leaves_the_moving_averages(rng):
    layer = BatchNorm()
    x = rng.normal(size=(3, 5, 7)).astype("float32")
    layer(x, mask=np.zeros((3, 5), bool), training=True)
    np.testing.assert_array_equal(layer.moving_variance, 1)
    layer.trainable = False
    np.testing.assert_allclose(layer(x, training=True), layer(x), atol=1e-6)
    np.testing.assert_array_equal(layer.moving_mean, 0)
