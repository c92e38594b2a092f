"""A search after a prompt is the search of a model that has read the prompt."""

import numpy as np
import pytest
import search_oracle as oracle
import tensorflow as tf
from search_oracle import BOS
from toy import Toy, V, assert_complete, assert_found, sequences

from tfformer import beam_search, greedy_search, sample_search
from tfformer.search import State, StepResult

B, W, T = 3, 4, 7
PROMPTS = np.array([[BOS, 5, 4], [BOS, 4, 4], [BOS, 1, 5]], "int32")


def after(toy, width):
    """The state of the artificial model after the prompts without their last token, in the first
    beam."""
    cache = np.zeros((B, PROMPTS.shape[1], width), "int32")
    cache[:, :-1, 0] = PROMPTS[:, :-1]
    return State(toy.state(width).memory, (tf.constant(cache), {"doubled": tf.constant(2 * cache)}))


def log_probs_after(toy, b):
    return lambda prefix: toy.log_probs_of(b)((*PROMPTS[b, 1:].tolist(), *prefix))


@pytest.mark.parametrize("options", [{}, {"num_results": 1}, {"min_length": 3}])
def test_beam_search_continues_after_the_prompt(options):
    toy = Toy(seed=5, batch=B, eos_bonus=1.0)
    found = beam_search(
        toy.step, after(toy, W), B, T, beam_width=W, prompt=tf.constant(PROMPTS), **options
    )
    assert_complete(found, T)
    minimum = options.get("min_length", 0)
    assert (found.lengths >= minimum).numpy().all()
    for b in range(B):
        expected = [
            (ids, score, sum(gains))
            for ids, score, gains in oracle.beam_with(
                log_probs_after(toy, b), V, T, W, 0.6, min_length=minimum
            )
        ]
        assert_found(found, b, expected[: options.get("num_results", W)])


def test_greedy_search_continues_after_the_prompt():
    toy = Toy(seed=6, batch=B)
    found = greedy_search(toy.step, after(toy, 1), B, T, prompt=tf.constant(PROMPTS))
    for b in range(B):
        of = log_probs_after(toy, b)
        ids = oracle.greedy(of, V, T)
        assert_found(found, b, [(ids, oracle.log_prob(of, ids), oracle.log_prob(of, ids))])


def test_stop_token_in_the_prompt_does_not_stop_the_search():
    """The prompts contain 5, which ends a sequence."""
    toy = Toy(seed=6, batch=B, eos_bonus=-2)
    given = {"prompt": tf.constant(PROMPTS)}
    free = greedy_search(toy.step, after(toy, 1), B, T, **given)
    found = greedy_search(
        toy.step, after(toy, 1), B, T, stop=lambda newest: tf.reduce_any(newest == 5, 1), **given
    )
    for b in range(B):
        [whole], [cut] = sequences(free, b), sequences(found, b)
        assert cut == (whole[: whole.index(5) + 1] if 5 in whole else whole)


def test_log_probability_of_a_sample_after_a_prompt_equals_the_model():
    toy = Toy(seed=7, batch=B, eos_bonus=1.0)
    found = sample_search(toy.step, after(toy, 1), B, T, seed=3, prompt=tf.constant(PROMPTS))
    assert_complete(found, T)
    for b in range(B):
        ids = tuple(found.token_ids[b, 0, : found.lengths[b, 0]].numpy().tolist())
        expected = oracle.log_prob(log_probs_after(toy, b), ids)
        np.testing.assert_allclose(found.log_probs[b, 0], expected, rtol=1e-5)


def test_left_padding_of_prompts_is_not_visible():
    """The logits count what a hypothesis can see: the tokens of its prompt, and no padding."""
    prompts = np.array([[0, 0, BOS], [0, BOS, 5], [BOS, 4, 5]], "int32")

    def step(ids, position, visible, state):
        count = tf.reduce_sum(tf.cast(visible, tf.int32), axis=[2, 3])  # [B, W]
        # It can see 1, 2 and 3 tokens of the prompts; eos comes from 5 on.
        favourite = tf.where(count >= 5, 3, 4)
        return StepResult(5.0 * tf.one_hot(favourite, V), state.cache)

    state = State((), tf.zeros([B, 3, 1]))
    found = greedy_search(step, state, B, T, prompt=tf.constant(prompts))
    assert found.lengths[:, 0].numpy().tolist() == [5, 4, 3]
