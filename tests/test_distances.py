"""Other losses than cross-entropy: by hand, by their dense formulas, and their gradients."""

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer import SmoothedCrossEntropy
from tfformer.distances import KLDivergence, SquaredDistance

B, T, V = 3, 5, 11
LABELS = np.array([[5, 10, 1, 7, 3], [4, 3, 0, 0, 0], [3, 0, 0, 0, 0]])
smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])


@pytest.fixture
def logits(rng):
    return rng.normal(scale=2, size=(B, T, V)).astype("float32")


def mean(losses):
    return losses[LABELS != 0].mean()


@smoothings
def test_kl_divergence_equals_the_dense_formula(logits, smoothing):
    q = oracle.smoothed_targets(LABELS, V, smoothing)
    ratio = np.where(q > 0, q, 1) / oracle.softmax(logits.astype("float64"))
    expected = np.where(q > 0, q * np.log(ratio), 0).sum(axis=-1)
    np.testing.assert_allclose(KLDivergence(smoothing)(LABELS, logits), mean(expected), rtol=1e-4)
    assert (expected[LABELS != 0] > 0).all()


@smoothings
def test_squared_distance_equals_the_dense_formula(logits, smoothing):
    q = oracle.smoothed_targets(LABELS, V, smoothing)
    expected = ((q - oracle.softmax(logits.astype("float64"))) ** 2).sum(axis=-1)
    loss = SquaredDistance(smoothing)(LABELS, logits)
    np.testing.assert_allclose(loss, mean(expected), rtol=1e-5)


@smoothings
def test_only_kl_has_the_gradient_of_cross_entropy(logits, smoothing):
    """The target is fixed, and so is its entropy."""
    logits = tf.Variable(logits)
    losses = [kind(smoothing) for kind in (SmoothedCrossEntropy, KLDivergence, SquaredDistance)]
    with tf.GradientTape(persistent=True) as tape:
        values = [loss(LABELS, logits) for loss in losses]
    gradients = [tape.gradient(value, logits).numpy() for value in values]
    np.testing.assert_allclose(gradients[1], gradients[0], atol=1e-7)
    assert np.abs(gradients[2] - gradients[0]).max() > 1e-2
    if smoothing:
        assert values[1] < values[0]


@pytest.mark.parametrize("kind", [KLDivergence, SquaredDistance])
def test_losses_are_restored_from_their_configuration(kind, logits):
    loss = kind(0.37, r_drop=0.5)
    other = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(other) is kind and other.get_config() == loss.get_config()
    rows = np.concatenate([logits, logits])
    labels = np.concatenate([LABELS, LABELS])
    # For two equal passes, R-Drop adds nothing.
    np.testing.assert_allclose(other(labels, rows), kind(0.37)(LABELS, logits), rtol=1e-5)
