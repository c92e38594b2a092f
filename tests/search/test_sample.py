"""Sampling draws from the right distribution, and draws the same for the same seed."""

import numpy as np
import pytest
import search_oracle as oracle
import tensorflow as tf
from search_oracle import BOS, PAD
from toy import Toy, assert_complete, sequences

from tfformer import greedy_search, sample_search
from tfformer.search import (
    State,
    StepResult,
    keep_likeliest,
)


def draw(logits, count, seed=0, max_length=2, **options):
    """The first tokens of `count` rows with the same distribution."""

    def step(ids, position, visible, state):
        return StepResult(
            tf.tile(tf.constant(logits, tf.float32)[None, None], [tf.shape(ids)[0], 1, 1]), ()
        )

    found = sample_search(step, State(), count, max_length, seed, **options)
    return found.token_ids[:, 0, 0]


def surprise(tokens, probs):
    """Pearson's chi-square statistic of drawn tokens against probabilities."""
    expected = len(tokens) * np.asarray(probs)
    counts = np.bincount(tokens, minlength=len(probs))
    possible = expected > 0
    assert not counts[~possible].any()
    return ((counts - expected)[possible] ** 2 / expected[possible]).sum()


def allowed_softmax(logits):
    logits = np.array(logits, "float64")
    logits[[PAD, BOS]] = -np.inf
    return np.exp(oracle.log_softmax(logits))


LOGITS = [3.0, 0.5, 2.0, 1.0, 1.7, -0.3, 0.1]
# With 4 degrees of freedom a chi-square is over 30 once in 200,000 times.
BOUND = 30


def test_drawn_frequencies_follow_the_softmax():
    assert surprise(draw(LOGITS, 20_000), allowed_softmax(LOGITS)) < BOUND


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_divides_the_logits(temperature):
    tokens = draw(LOGITS, 20_000, temperature=temperature)
    assert surprise(tokens, allowed_softmax(np.array(LOGITS) / temperature)) < BOUND


def test_top_k_keeps_the_k_most_likely_and_their_proportions():
    kept = np.full(len(LOGITS), -np.inf)
    kept[[3, 4]] = LOGITS[3], LOGITS[4]
    assert surprise(draw(LOGITS, 20_000, top_k=2), np.exp(oracle.log_softmax(kept))) < BOUND


def test_the_same_seed_draws_the_same_and_another_seed_another():
    toy = Toy(seed=17, batch=23)

    def run(seed):
        found = sample_search(toy.step, toy.state(), toy.batch, 9, seed)
        assert_complete(found, 9)
        return found

    first, again = run(5), run(5)
    for one, other in zip(first[:4], again[:4], strict=True):
        np.testing.assert_array_equal(one, other)
    others = [run(seed) for seed in (0, 6, -1, 2**31 - 1)]
    drawn = {str([sequences(found, b) for b in range(toy.batch)]) for found in [first, *others]}
    assert len(drawn) == 5


def test_positions_of_a_sample_are_drawn_independently():
    # With the same seed at all positions, the same token would be drawn at each.

    def step(ids, position, visible, state):
        logits = tf.constant([[[0.0, 0, 0, -9, 0, 0]]])
        return StepResult(tf.tile(logits, [tf.shape(ids)[0], 1, 1]), ())

    token_ids = sample_search(step, State(), 200, 4, seed=0).token_ids.numpy()[:, 0]
    same = (token_ids[:, 0] == token_ids[:, 1]).mean()
    assert 0.2 < same < 0.5


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}])
def test_sampling_only_the_most_likely_is_greedy(options):
    toy = Toy(seed=18, batch=11)
    greedy = greedy_search(toy.step, toy.state(), toy.batch, 7)
    for seed in (0, 1):
        found = sample_search(toy.step, toy.state(), toy.batch, 7, seed, **options)
        for b in range(toy.batch):
            assert sequences(found, b) == sequences(greedy, b)


def test_log_probs_of_a_sample_are_untempered():
    toy = Toy(seed=19, batch=7)
    found = sample_search(toy.step, toy.state(), 7, 6, 1, temperature=3.0, top_k=3, top_p=0.9)
    for b in range(7):
        (ids,) = sequences(found, b)
        expected = oracle.log_prob(toy.log_probs_of(b), ids)
        np.testing.assert_allclose(found.log_probs[b, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("top_k", [0, 1, 3, 11, 17])
@pytest.mark.parametrize("top_p", [1e-3, 0.5, 0.9, 1.0])
def test_top_k_and_top_p_filter_equals_a_sorted_list(rng, top_k, top_p):
    logits = rng.normal(scale=2, size=(5, 3, 11)).astype("float32")
    logits[:, :, 2] = -np.inf
    found = keep_likeliest(logits, top_k, top_p).numpy()
    for row in np.ndindex(5, 3):
        order = [v for v in np.argsort(-logits[row]) if v != 2][: top_k or None]
        probs = np.exp(oracle.log_softmax(logits[row][order]))
        kept, mass = [], 0.0
        for v, p in zip(order, probs, strict=True):
            if kept and mass >= top_p and top_p < 1:
                break
            kept.append(v)
            mass += p
        assert set(np.flatnonzero(np.isfinite(found[row]))) == set(kept)
        np.testing.assert_array_equal(found[row][kept], logits[row][kept])


def test_top_p_of_1_keeps_very_unlikely_tokens():
    logits = tf.constant([20.0, 0.0, -1.0, -30.0])
    np.testing.assert_array_equal(keep_likeliest(logits, 0, 1.0), logits)


@pytest.mark.parametrize("top_k, top_p", [(0, 1.0), (1, 1.0), (7, 1.0), (0, 0.8), (7, 0.8)])
def test_options_as_numbers_or_tensors_draw_the_same(top_k, top_p):
    toy = Toy(seed=23, batch=5)

    @tf.function(autograph=False)
    def drawn(top_k, top_p):
        return sample_search(toy.step, toy.state(), 5, 6, seed=3, top_k=top_k, top_p=top_p)

    one = sample_search(toy.step, toy.state(), 5, 6, seed=3, top_k=top_k, top_p=top_p)
    other = drawn(tf.constant(top_k), tf.constant(top_p, tf.float32))
    np.testing.assert_array_equal(one.token_ids, other.token_ids)
    np.testing.assert_allclose(one.log_probs, other.log_probs, rtol=1e-6)
