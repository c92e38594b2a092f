"""Positions: sinusoids by hand, their rotation, any length, any offset, any precision."""

import math

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer import LearnedPositionalEmbedding, SinusoidalPositionalEncoding
from tfformer.layers.positions import sinusoids

B, T, D, M = 2, 5, 14, 11


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, T, D)).astype("float32")


# Sinusoids.


def test_sinusoids_by_hand():
    # d_model = 4: the wave numbers are 1 and 10000^(-2/4) = 1/100.
    expected = [
        [0, 1, 0, 1],
        [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
        [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)],
    ]
    np.testing.assert_allclose(sinusoids(np.arange(3), 4), expected, atol=1e-6)


def test_sinusoids_equal_the_oracle():
    assert sinusoids(np.arange(211), D).shape == (211, D)
    np.testing.assert_allclose(sinusoids(np.arange(211), D), oracle.sinusoids(211, D), atol=2e-5)


@pytest.mark.parametrize("k", [1, 3, 17])
def test_a_shift_by_k_is_one_rotation_of_every_position(k):
    rotation = np.zeros((D, D))
    for i in range(0, D, 2):
        angle = k / 10000 ** (i / D)
        sin, cos = math.sin(angle), math.cos(angle)
        # (sin, cos)(a + angle) from (sin, cos)(a).
        rotation[i : i + 2, i : i + 2] = [[cos, sin], [-sin, cos]]
    positions = np.arange(101)
    shifted = sinusoids(positions, D).numpy() @ rotation.T
    np.testing.assert_allclose(sinusoids(positions + k, D), shifted, atol=5e-5)


def test_sinusoidal_layer_adds_the_table(x):
    output = SinusoidalPositionalEncoding(D)(x)
    assert output.shape == (B, T, D)
    np.testing.assert_allclose(output, x + oracle.sinusoids(T, D), atol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 5003])
def test_sinusoidal_layer_takes_any_length(length):
    output = SinusoidalPositionalEncoding(4)(np.zeros((1, length, 4)))
    np.testing.assert_allclose(output[0, -1], oracle.sinusoid(length - 1, 4), atol=1e-3)


# What both layers must do.


def make(kind, **kwargs):
    if kind == "learned":
        return LearnedPositionalEmbedding(M, D, **kwargs)
    return SinusoidalPositionalEncoding(D, **kwargs)


both = pytest.mark.parametrize("name", ["sinusoidal", "learned"])


@both
def test_start_offsets_the_positions(name, x):
    layer = make(name)
    long = layer(np.zeros((1, M, D)))
    for start in (0, 1, M - T):
        expected = x + long[:, start : start + T]
        np.testing.assert_allclose(layer(x, start=start), expected, atol=1e-6)
        np.testing.assert_allclose(layer(x, start=tf.constant(start)), expected, atol=1e-6)


@both
def test_dynamic_length_and_start_give_the_same_output(name, x):
    layer = make(name)
    expected = layer(x)
    graph = tf.function(
        lambda x, start: layer(x, start=start),
        input_signature=[tf.TensorSpec((None, None, D)), tf.TensorSpec((), tf.int32)],
    )
    np.testing.assert_allclose(graph(x, 0), expected, atol=1e-6)
    np.testing.assert_allclose(graph(x[:, 2:], 2), expected[:, 2:], atol=1e-6)


@both
def test_mask_passes_through(name, x):
    x[1, 3:] = 0
    output = make(name)(keras.layers.Masking()(x))
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(output), (x != 0).any(axis=-1))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("start", [0, 2000])
def test_half_precision_rounds_the_sinusoids_and_not_the_positions(policy, start):
    # bfloat16 cannot hold 257, float16 cannot hold 2049.
    length, d_model = 307, 4
    layer = SinusoidalPositionalEncoding(d_model, dtype=policy)
    output = layer(np.zeros((1, length, d_model)), start=start)[0]
    table = tf.cast(sinusoids(np.arange(start, start + length), d_model), output.dtype)
    np.testing.assert_array_equal(tf.cast(output, "float32"), tf.cast(table, "float32"))
    assert (np.abs(np.diff(tf.cast(output, "float32"), axis=0)).max(axis=-1) > 0.1).all()


# Learned positions.


def test_learned_layer_adds_one_vector_a_position(x):
    layer = LearnedPositionalEmbedding(M, D)
    output = layer(x)
    assert output.shape == (B, T, D)
    np.testing.assert_allclose(output, x + layer.embeddings.numpy()[:T], atol=1e-6)


def test_learned_layer_refuses_a_sequence_known_to_be_too_long():
    layer = LearnedPositionalEmbedding(M, D)
    layer(np.zeros((B, M, D)))
    with pytest.raises(ValueError, match="max_positions=11, got positions 0 to 11"):
        layer(np.zeros((B, M + 1, D)))
    with pytest.raises(ValueError, match="max_positions=11, got positions 2 to 11"):
        layer(np.zeros((B, M - 1, D)), start=2)


def test_learned_layer_repeats_the_last_vector_after_the_end():
    layer = LearnedPositionalEmbedding(M, D)
    layer.build()
    graph = tf.function(layer, input_signature=[tf.TensorSpec((None, None, D))])
    output = graph(np.zeros((1, M + 2, D), "float32"))[0]
    np.testing.assert_allclose(output[:M], layer.embeddings, atol=1e-6)
    np.testing.assert_allclose(output[M:], [layer.embeddings[-1]] * 2, atol=1e-6)


@pytest.mark.parametrize(
    ("d_model", "message"),
    [
        (0, "d_model must be an integer of at least 1, got 0"),
        (7, "d_model must be even, got 7"),
        (-2, "d_model must be an integer of at least 1, got -2"),
    ],
)
def test_sinusoidal_layer_refuses_a_bad_width(d_model, message):
    with pytest.raises(ValueError, match=message):
        SinusoidalPositionalEncoding(d_model)


@pytest.mark.parametrize(
    ("positions", "d_model", "message"),
    [
        (0, 7, "max_positions must be an integer of at least 1, got 0"),
        (11, None, "d_model must be an integer of at least 1, got None"),
    ],
)
def test_learned_layer_refuses_bad_sizes(positions, d_model, message):
    with pytest.raises(ValueError, match=message):
        LearnedPositionalEmbedding(positions, d_model)


@pytest.mark.parametrize("make", [SinusoidalPositionalEncoding, LearnedPositionalEmbedding])
@pytest.mark.parametrize("width", [1, D - 1, D + 1])
def test_another_width_is_refused(make, width):
    """A width of 1 would be broadcast."""
    sizes = (D,) if make is SinusoidalPositionalEncoding else (M, D)
    message = rf"d_model = {D}, got .*{width}\)"
    with pytest.raises(ValueError, match=message):
        make(*sizes)(np.zeros((B, T, width), "float32"))
    # Also for a layer that is built already, and before the first step of a functional model.
    layer = make(*sizes)
    layer(np.zeros((B, T, D), "float32"))
    with pytest.raises(ValueError, match=message):
        layer(np.zeros((B, T, width), "float32"))
    with pytest.raises(ValueError, match=message):
        make(*sizes)(keras.Input((None, width)))
