"""A step function over a random table, and rules that each search result must follow."""

import numpy as np
import search_oracle as oracle
import tensorflow as tf
from search_oracle import BOS, EOS, PAD

from tfformer.search import State, StepResult

V, T, ROWS = 6, 5, 997
FACTORS = np.random.default_rng(3).integers(1, ROWS, size=64)


class Toy:
    """Logits that depend on the sentence and on the whole prefix, which only the state has.

    The memory is the sentence's table; the cache has the token at each position, and its double.
    """

    def __init__(self, seed=0, batch=2, size=V, eos_bonus=0.0):
        rng = np.random.default_rng(seed)
        self.table = rng.normal(scale=1.5, size=(batch, ROWS, size)).astype("float32")
        self.table[:, :, EOS] += eos_bonus
        self.batch, self.size, self.seen = batch, size, []

    def state(self, width=1, table=None):
        table = tf.constant(self.table) if table is None else table
        empty = tf.zeros([tf.shape(table)[0], 1, width], tf.int32)
        return State(table, (empty, {"doubled": empty}))

    def step(self, ids, position, visible, state):
        now = (tf.range(tf.shape(visible)[2]) == position)[:, None]
        tokens, others = state.cache
        tokens = tf.where(now, ids[:, None], tokens)
        doubled = tf.where(now, 2 * ids[:, None], others["doubled"])
        # Each hypothesis sees one token at each position up to this one.
        known = tf.reduce_sum(tf.where(visible, tokens[:, None], 0), axis=-1)[:, :, : position + 1]
        if tf.executing_eagerly():
            np.testing.assert_array_equal(doubled, 2 * tokens)
            seen = tf.reduce_sum(tf.cast(visible, tf.int32), axis=-1)
            assert (seen[:, :, : position + 1] == 1).numpy().all()
            assert (seen[:, :, position + 1 :] == 0).numpy().all()
            self.seen.append(known.numpy())
        factors = tf.constant(FACTORS, tf.int32)[: position + 1]
        row = tf.reduce_sum((known + 1) * factors, axis=-1) % ROWS
        logits = tf.gather(state.memory, row, batch_dims=1)
        return StepResult(logits, (tokens, {"doubled": doubled}))

    def log_probs_of(self, b=0):
        def of(prefix):
            tokens = np.array([BOS, *prefix])
            row = ((tokens + 1) * FACTORS[: len(tokens)]).sum() % ROWS
            return oracle.log_softmax(self.table[b, row])

        return of


def sequences(found, b=0):
    """The token ids found for a sentence, without padding, as tuples."""
    lengths = np.array(found.lengths[b])
    return [
        tuple(row[:n].tolist())
        for row, n in zip(np.array(found.token_ids[b]), lengths, strict=True)
    ]


def assert_found(found, b, expected):
    """`expected`: (ids, score, log prob) triples, best first."""
    assert sequences(found, b) == [ids for ids, _, _ in expected]
    np.testing.assert_allclose(found.scores[b], [e[1] for e in expected], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.log_probs[b], [e[2] for e in expected], rtol=1e-5, atol=1e-6)


def assert_complete(found, max_length):
    """Checks rules for each result: eos at the end and nowhere else, no bos, padding after it."""
    token_ids, lengths = np.array(found.token_ids), np.array(found.lengths)
    assert token_ids.dtype == lengths.dtype == np.int32
    assert token_ids.shape[2] <= max_length
    for ids, length in zip(token_ids.reshape(-1, token_ids.shape[2]), lengths.ravel(), strict=True):
        assert 1 <= length <= max_length
        assert ids[length - 1] == EOS
        assert not np.isin(ids[: length - 1], [PAD, BOS, EOS]).any()
        assert (ids[length:] == PAD).all()
