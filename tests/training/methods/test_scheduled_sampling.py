"""Scheduled sampling: the decays of the paper, which tokens are replaced, and how many."""

import math

import numpy as np
import pytest
import tensorflow as tf
from variants import make

from tfformer.layers.packing import without_padding
from training.methods.method import Noted
from training.methods.own_tokens import NEVER
from training.methods.scheduled_sampling import ScheduledSampling, inverse_sigmoid_k

B, T, V, N = 5, 7, 17, 1000
SOURCE = np.array([[5, 9, 3, 0]] * B, "int32")
TARGET = np.array([[2, 5, 6, 7, 8, 9, 10]] * (B - 1) + [[2, 5, 0, 0, 0, 0, 0]], "int32")
LABELS = np.array([[5, 6, 7, 8, 9, 10, 3]] * (B - 1) + [[5, 3, 0, 0, 0, 0, 0]], "int32")


class Says:
    """A model that ignores the target: at each position it predicts the id there, plus 11."""

    def __init__(self, step):
        self.optimizer = type("Optimizer", (), {"iterations": tf.constant(step)})
        self.metrics, self.read = [Noted("replaced")], []

    def __call__(self, inputs, training):
        assert training is False
        self.read.append(inputs)
        ids = tf.tile(tf.range(T)[None] + 11, [B, 1])
        # Ids that are never read are much more likely.
        return 9.0 * tf.one_hot(ids % V, V) + 99.0 * tf.reduce_sum(tf.one_hot(NEVER, V), axis=0)


def sampled(step=N, share=0.99, decay="linear", by="argmax", passes=2, seed=(3, 4)):
    model = Says(step)
    method = ScheduledSampling(share, decay, by, passes, N)
    inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    inputs, labels, weights = method(model, inputs, LABELS, tf.constant(seed))
    assert weights is None and labels is LABELS
    return model, inputs


@pytest.mark.parametrize("share", [0.25, 0.9])
def test_decays_match_the_formulas_of_the_paper(share):
    """By hand, from the equations: about 0 at first, S at the end, with different curves."""

    def at(decay, part):
        return float(ScheduledSampling(share, decay, "argmax", 2, N).share_at(round(part * N)))

    for part in (0.0, 0.3, 1.0, 1.5):
        x = min(part, 1)
        assert at("linear", part) == pytest.approx(share * x, rel=1e-5)
        k = (1 - share) ** (1 / N)
        assert at("exponential", part) == pytest.approx(1 - k ** (x * N), abs=1e-4)
    k = inverse_sigmoid_k(share, N)
    for part in (0.0, 0.3, 0.7, 1.0):
        expected = 1 - k / (k + math.exp(part * N / k))
        assert at("inverse-sigmoid", part) == pytest.approx(expected, abs=1e-4)
    assert at("inverse-sigmoid", 0.0) < 0.02
    assert at("inverse-sigmoid", 1.0) == pytest.approx(share, abs=1e-3)


def test_replaced_inputs_are_predictions_of_the_previous_position():
    """At t + 1, the input is the model's prediction at t; bos and padding stay."""
    model, inputs = sampled()
    found = inputs["target_ids"].numpy()
    own = np.concatenate([[2], (np.arange(T - 1) + 11) % V])
    own[own < 4] = 4  # none of those that are never read
    assert (found[:, 0] == 2).all() and (found[-1, 2:] == 0).all()
    changed = found != TARGET
    assert changed.sum() > 15
    np.testing.assert_array_equal(found[changed], np.tile(own, (B, 1))[changed])
    tokens = (TARGET[:, 1:] != 0).sum()
    np.testing.assert_allclose(model.metrics[0].result(), changed.sum() / tokens)


def test_share_of_replaced_tokens_follows_the_schedule():
    shares = [float(sampled(step=N // 2, share=0.8, seed=(n, 1))[0].metrics[0].result())
              for n in range(50)]  # fmt: skip
    assert np.mean(shares) == pytest.approx(0.4, abs=0.05)


def test_sampled_tokens_follow_the_model_s_distribution():
    class Even(Says):
        def __call__(self, inputs, training):
            return tf.math.log(tf.tile(tf.constant([[[0.0] * 4 + [0.25, 0.75] + [0.0] * 11]]),
                                       [B, T, 1]))  # fmt: skip

    found = []
    for seed in range(60):
        method = ScheduledSampling(0.99, "linear", "sampled", 2, N)
        known = Even(N), {"source_ids": SOURCE, "target_ids": TARGET}, LABELS
        ids = method(*known, tf.constant([seed, 7]))[0]["target_ids"].numpy()[:-1, 1:]
        found.append(ids)
    found = np.stack(found)
    assert set(found[found != TARGET[:-1, 1:]]) == {4, 5}
    # For positions whose true word differs from both.
    others = found[:, :, 1:]
    assert (others == 4).sum() / ((others == 4) | (others == 5)).sum() == pytest.approx(
        0.25, abs=0.03
    )


def test_mixed_inputs_equal_weighted_mean_embeddings(randomise, rng):
    """Compared with a model that is called with one id at each position, whose embedding is the
    mean."""
    model = randomise(make("learned"))
    inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    ids = np.tile(TARGET[:, :, None], 3)
    ids[:, 1:, 1:] = rng.integers(4, V, (B, T - 1, 2))
    weights = rng.random((B, T, 3)).astype("float32")
    weights /= weights.sum(-1, keepdims=True)
    mixed = {**inputs, "mixed_ids": ids, "mixed_weights": weights}
    logits = model(mixed).numpy()
    matrix = model.target_embedding.embeddings.numpy()
    mean = (weights[..., None] * matrix[ids]).sum(axis=2)

    class Mean:
        vocabulary_size = V

        def __call__(self, ids):
            return tf.constant(mean * model.config.d_model**0.5)

        project = model.target_embedding.project

    known = model.target_embedding
    model._tracker.unlock()
    object.__setattr__(model, "target_embedding", Mean())
    expected = model.decode(TARGET, model.encode(SOURCE), SOURCE != 0)
    object.__setattr__(model, "target_embedding", known)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    # With all weight on the true token it is teacher forcing; without padding it is the same.
    alone = np.zeros_like(weights)
    alone[..., 0] = 1
    true = {**mixed, "mixed_weights": alone}
    np.testing.assert_allclose(model(true), model(inputs), atol=1e-5)
    packed, _ = without_padding(mixed, LABELS)
    tokens = LABELS != 0
    np.testing.assert_allclose(model(packed)[: tokens.sum()], logits[tokens], atol=1e-4)


def test_mixed_inputs_equal_true_tokens_when_nothing_is_replaced():
    model, inputs = sampled(step=0, by="mixed")
    np.testing.assert_array_equal(inputs["mixed_ids"][..., 0], TARGET)
    np.testing.assert_array_equal(inputs["mixed_weights"][..., 0], 1)
    assert float(model.metrics[0].result()) == 0
    model, inputs = sampled(by="mixed")
    np.testing.assert_allclose(tf.reduce_sum(inputs["mixed_weights"], -1), 1, rtol=1e-6)
    assert inputs["mixed_ids"].shape == (B, T, 5)
    assert float(model.metrics[0].result()) > 0.7
