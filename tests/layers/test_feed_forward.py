"""The feed-forward layer: its equation, with each activation, at each position."""

import numpy as np
import oracle
import pytest

from tfformer import FeedForward
from tfformer.config import ACTIVATIONS

B, T, D, F = 2, 5, 13, 29


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, T, D)).astype("float32")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layer_equals_the_oracle(activation, x, randomise):
    layer = FeedForward(D, F, activation)
    layer.build(x.shape)
    randomise(layer)
    assert layer(x).shape == (B, T, D)
    oracle.assert_close(layer(x), oracle.feed_forward(layer, x))


def test_relu_by_hand():
    layer = FeedForward(2, 3)
    layer.build((None, 2))
    layer.inner.kernel.assign([[1, -1, 2], [0, 1, 1]])
    layer.inner.bias.assign([0, 0, -3])
    layer.outer.kernel.assign([[1, 2], [3, 4], [5, 6]])
    layer.outer.bias.assign([10, 20])
    # (1, 2) W_1 + b_1 = (1, 1, 1); (2, 0) W_1 + b_1 = (2, -2, 1), and relu gives (2, 0, 1).
    np.testing.assert_allclose(layer(np.array([[1.0, 2], [2, 0]])), [[19, 32], [17, 30]])


@pytest.mark.parametrize(
    ("d_model", "d_ff", "message"),
    [
        (0, 29, "d_model must be an integer of at least 1, got 0"),
        (13, 2.5, "d_ff must be an integer of at least 1, got 2.5"),
    ],
)
def test_error_names_a_bad_size(d_model, d_ff, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(d_model, d_ff)


def test_error_names_a_bad_activation():
    with pytest.raises(ValueError, match="activation must be one of .*'relu'.*, got 'tanh'"):
        FeedForward(D, F, "tanh")


@pytest.mark.parametrize("width", [1, D - 1, D + 1])
def test_another_width_is_refused(width):
    with pytest.raises(ValueError, match=rf"d_model = {D}, got .*{width}\)"):
        FeedForward(D, F)(np.zeros((B, T, width)))
