"""Dropout by random bytes: how many elements are dropped, the scale of the others, the
gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfformer.layers.dropout import Dropout


@pytest.mark.parametrize(("rate", "bytes_"), [(0.1, 26), (0.3, 77), (0.5, 128), (0.001, 1)])
def test_dropped_share_is_the_rate_in_256ths(rate, bytes_):
    n = 1_000_003
    y = Dropout(rate, seed=5)(tf.ones(n), training=True).numpy()
    share = bytes_ / 256
    assert abs((y == 0).mean() - share) < 5 * (share * (1 - share) / n) ** 0.5
    np.testing.assert_allclose(y[y != 0], 1 / (1 - share), rtol=1e-6)


def test_rate_near_1_keeps_some_elements_scaled_by_256():
    y = Dropout(0.999, seed=5)(tf.ones(100_003), training=True).numpy()
    assert set(np.unique(y)) == {0, 256}


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("shape", [(1,), (7, 11, 13), (2, 4)])
def test_kept_elements_and_their_gradients_are_scaled(rng, dtype, shape):
    layer = Dropout(0.3, seed=5, dtype=dtype)
    x = tf.cast(rng.normal(size=shape), layer.compute_dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    assert y.dtype == x.dtype and y.shape == x.shape
    factor = tape.gradient(y, x)
    scale = tf.cast(256 / (256 - 77), x.dtype)
    assert set(np.unique(tf.cast(factor, "float32"))) <= {0, float(scale)}
    np.testing.assert_array_equal(y, x * factor)


def test_elements_are_dropped_independently():
    """An element is dropped independently of the next one, the next row and the next call."""
    layer = Dropout(0.5, seed=5)
    first, second = (layer(tf.ones((997, 1009)), training=True).numpy() > 0 for _ in range(2))
    for a, b in (
        (first, second),
        *((first[:, k:], first[:, :-k]) for k in (1, 2, 3, 4, 8)),
        *((first[k:], first[:-k]) for k in (1, 2)),
    ):
        assert abs((a == b).mean() - 0.5) < 5 * 0.5 / 1e3


def test_seed_gives_a_reproducible_sequence_whose_state_can_be_copied():
    one, two = Dropout(0.3, seed=5), Dropout(0.3, seed=5)
    x = tf.ones((7, 11))
    step = tf.function(lambda x: one(x, training=True))
    drawn = [step(x).numpy() for _ in range(3)]
    assert (drawn[0] != drawn[1]).any() and (drawn[1] != drawn[2]).any()
    two(x, training=True)
    np.testing.assert_array_equal(two(x, training=True), drawn[1])
    other = Dropout(0.3, seed=3)
    for variable, value in zip(other.variables, two.variables, strict=True):
        variable.assign(value)
    np.testing.assert_array_equal(other(x, training=True), drawn[2])


def test_nothing_is_dropped_outside_training(rng):
    x = tf.constant(rng.normal(size=(5, 7)))
    np.testing.assert_array_equal(Dropout(0.9, dtype="float64")(x), x)
    np.testing.assert_array_equal(Dropout(0.0, dtype="float64")(x, training=True), x)


def test_layer_survives_serialization():
    layer = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(Dropout(0.3)))
    assert type(layer) is Dropout and layer.rate == 0.3


@pytest.mark.slow
def test_dropout_compiles_with_xla():
    layer = Dropout(0.3, seed=5)

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x)

    y, gradient = (value.numpy() for value in step(tf.ones((97, 101))))
    np.testing.assert_array_equal(y, gradient)
    np.testing.assert_allclose(np.unique(y), [0, 256 / (256 - 77)], rtol=1e-6)


def test_noise_shape_and_rate_1_work_as_in_keras():
    rows = Dropout(0.5, noise_shape=(97, 1), seed=5)(tf.ones((97, 11)), training=True).numpy()
    assert (rows == rows[:, :1]).all() and len(np.unique(rows)) == 2
    assert not Dropout(1.0)(tf.ones((7, 11)), training=True).numpy().any()
