"""A search compiled by XLA gives the result of the plain one, within one room and beyond."""

import numpy as np
import pytest
import search_oracle as oracle
import tensorflow as tf
from search_oracle import BOS, EOS, PAD

from tfformer import beam_search
from tfformer.search import State, StepResult
from tfformer.search.hypotheses import Hypotheses
from tfformer.search.loop_xla import FIRST_ROOM, search_by_doubling

V, W, B, ROWS = 7, 3, 2, 997
FACTORS = np.random.default_rng(3).integers(1, ROWS, size=129)


class Toy:
    """Logits that depend on the sentence and on the whole prefix, which only the cache has."""

    def __init__(self, eos_bonus):
        rng = np.random.default_rng(5)
        self.table = rng.normal(scale=1.5, size=(B, ROWS, V)).astype("float32")
        self.table[:, :, EOS] += eos_bonus

    def state(self):
        return State(tf.constant(self.table), tf.zeros([B, 1, W], tf.int32))

    def step(self, ids, position, visible, state):
        capacity = tf.shape(visible)[2]
        now = (tf.range(capacity) == position)[:, None]
        tokens = tf.where(now, ids[:, None], state.cache)
        factors = tf.constant(FACTORS, tf.int32)[:capacity, None]
        known = tf.where(visible, ((tokens + 1) * factors)[:, None], 0)
        row = tf.reduce_sum(known, axis=[2, 3]) % ROWS
        return StepResult(tf.gather(state.memory, row, batch_dims=1), tokens)

    def log_probs_of(self, b):
        def of(prefix):
            tokens = np.array([BOS, *prefix])
            row = ((tokens + 1) * FACTORS[: len(tokens)]).sum() % ROWS
            return oracle.log_softmax(self.table[b, row])

        return of


# Within the first room; to its end; one token and a whole room further.
@pytest.mark.parametrize("max_length", [5, FIRST_ROOM, FIRST_ROOM + 1, 2 * FIRST_ROOM + 6])
def test_xla_beam_search_equals_the_plain_beam(max_length):
    toy = Toy(eos_bonus=-2.0)
    found = beam_search(toy.step, toy.state(), B, max_length, W, xla=True)
    assert tf.reduce_max(found.lengths) == max_length
    for b in range(B):
        for w, (ids, score, log_prob) in enumerate(
            oracle.beam(toy.log_probs_of(b), V, max_length, W, alpha=0.6)
        ):
            padding = [PAD] * (max_length - len(ids))
            assert found.token_ids[b, w].numpy().tolist() == [*ids, *padding]
            np.testing.assert_allclose(found.scores[b, w], score, rtol=1e-5)
            np.testing.assert_allclose(found.log_probs[b, w], log_prob, rtol=1e-5)


def test_kept_token_details_equal_the_search_without_xla():
    toy = Toy(eos_bonus=-2.0)
    # (This artificial model has no attention.)
    keep = ["token_log_probs", "steps"]
    options = {"num_results": 1, "skip": tf.constant([False, True]), "keep": keep}
    found, expected = (
        beam_search(toy.step, toy.state(), B, [50, 50], W, xla=xla, **options)
        for xla in (True, False)
    )
    assert 1 < found.lengths[0, 0] < FIRST_ROOM and found.lengths[1, 0] == 0
    for ours, theirs in zip(*map(tf.nest.flatten, (found, expected)), strict=True):
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def run_counted(needs):
    """The `Hypotheses` of a search whose sentences need these steps, and the number of steps."""
    needs = tf.constant(needs)
    size = tf.size(needs)
    skip, given = needs == 0, {"needs": needs}
    start = Hypotheses.start(size, 1, tf.zeros([size, 1]), skip, given)

    def settled(h):
        return h.finished[:, 0]

    def advance(position, h, state):
        lengths = h.lengths + 1  # each computed step of each row counts
        finished = h.finished | (lengths >= h.given["needs"][:, None])
        return h._replace(lengths=lengths, finished=finished), state.cache

    found = search_by_doubling(advance, settled, start, State((), tf.zeros([size, 1, 1])))
    return found, tf.reduce_max(found.lengths).numpy()


@pytest.mark.parametrize(
    "needs, loops",
    [([0, 0], 0), ([3, 0], 1), ([31, 32], 1), ([33, 2], 2), ([0, 64], 2), ([65, 1], 3)],
)
def test_steps_equal_the_longest_sentence_and_cache_sizes_are_few(needs, loops):
    found, steps = run_counted(needs)
    assert steps == max(needs)
    assert found.ancestors.shape[2] - 1 == (0, 32, 64, 128)[loops]
