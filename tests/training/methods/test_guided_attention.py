"""Guided attention: the penalties of the papers, by hand; padding does not count; attention
follows."""

import math

import numpy as np
import tensorflow as tf
from variants import make

from training.methods.guided_attention import GuidedAttention, linked, off_the_diagonal

SOURCE = np.array([[5, 6, 7, 3], [5, 3, 0, 0], [0, 0, 0, 0]])
TARGET = np.array([[2, 8, 9], [2, 8, 0], [0, 0, 0]])
INPUTS = {"source_ids": SOURCE, "target_ids": TARGET}


def test_off_diagonal_cost_by_hand():
    cost = off_the_diagonal(SOURCE, TARGET).numpy()
    assert cost.shape == (3, 3, 4)
    for row, (size, count) in enumerate(((4, 3), (2, 2), (0, 0))):
        for t, s in np.ndindex(3, 4):
            expected = 0.0
            if t < count and s < size:
                expected = 1 - math.exp(-((t / count - s / size) ** 2) / (2 * 0.2**2))
            np.testing.assert_allclose(cost[row, t, s], expected, atol=1e-6)


def test_the_penalty_is_the_mean_over_guided_heads_summed_over_tokens(rng):
    attention = [tf.constant(rng.random((3, 5, 3, 4)), tf.float32) for _ in range(2)]
    cost = off_the_diagonal(SOURCE, TARGET).numpy()
    for heads, guided in ((2, slice(2)), (0, slice(None))):
        chosen = np.stack([layer.numpy()[:, guided] for layer in attention])  # [N, B, h, T, S]
        expected = 1.7 * (chosen * cost[None, :, None]).sum(axis=(3, 4)).mean(axis=(0, 2)).sum()
        np.testing.assert_allclose(
            GuidedAttention(1.7, heads)(attention, INPUTS), expected, rtol=1e-5
        )


def test_gradient_reaches_only_the_guided_heads(randomise):
    model = randomise(make(num_heads=7, num_decoder_layers=1))
    with tf.GradientTape() as tape:
        logits, attention = model.with_attention(INPUTS)
        penalty = GuidedAttention(1.0, 3)(attention, INPUTS)
    np.testing.assert_allclose(logits, model(INPUTS), atol=1e-6)
    cross = model.decoder.layers[0].cross_attention
    gradient = tape.gradient(penalty, cross.query_projection.kernel.value).numpy()
    of_heads = np.abs(gradient.reshape(14, 7, 2)).max(axis=(0, 2))
    assert (of_heads[:3] > 1e-6).all() and (of_heads[3:] == 0).all()


# Words 1, 1, 2, 3 and eos to words 1, 2, 2 and eos: 1-2, 2-2, 3-1; the second row is padding.
LINKED = {
    "source_words": np.array([[1, 1, 2, 3, 0], [0, 0, 0, 0, 0]], "int32"),
    "target_words": np.array([[1, 2, 2, 4, 0], [0, 0, 0, 0, 0]], "int32"),
    "links": np.array([[1, 2, 2, 2, 3, 1, 1, 2], [0, 0, 0, 0, 0, 0, 0, 0]], "int32"),
}
THIRD = 1 / 3
ASKED = [[0, 0, 0, 1, 0], [THIRD, THIRD, THIRD, 0, 0], [THIRD, THIRD, THIRD, 0, 0],
         [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]  # fmt: skip


def test_attention_distribution_of_links_by_hand():
    found = linked(**LINKED).numpy()
    np.testing.assert_allclose(found[0], ASKED, rtol=1e-6)
    assert found.shape == (2, 5, 5) and not found[1].any()


def test_the_penalty_of_links_is_a_cross_entropy(rng):
    attention = [rng.dirichlet(np.ones(5), (2, 3, 5)).astype("float32") for _ in range(2)]
    logs = np.log(np.stack(attention)[:, 0, :2])  # of the first row and the guided heads
    expected = -1.7 * (logs * np.array(ASKED)).sum(axis=(2, 3)).mean()
    penalty = GuidedAttention(1.7, 2)(list(map(tf.constant, attention)), LINKED)
    np.testing.assert_allclose(penalty, expected, rtol=1e-5)
