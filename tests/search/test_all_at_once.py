"""Non-autoregressive search: mask-predict, CTC and the first eos, compared with plain Python."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tfformer.search.parallel import (
    collapsed,
    is_text,
    likeliest_lengths,
    mask_predict,
    said,
    up_to_eos,
)

R, T, V = 5, 11, 17
LENGTHS = [11, 7, 1, 0, 5]


@pytest.fixture
def table(rng):
    """The tables of an artificial model; the logits of a position depend on all visible ids."""
    own = rng.normal(size=(T, V, V)).astype("float32")
    return lambda ids: np.stack(
        [
            sum(own[(t + n) % T, token] for n, token in enumerate(row))
            for row in ids
            for t in range(T)
        ]
    ).reshape(len(ids), T, V)


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def plain_mask_predict(logits_of, length, passes):
    """Ghazvininejad et al. 2019, section 3.2, one row and one token after the other."""
    ids, log_probs = [2] * length + [0] * (T - length), [0.0] * T
    for t in range(passes):
        count = int(length * (passes - t) / passes + 1e-4)
        hidden = sorted(range(length), key=lambda n: log_probs[n])[:count] if t else range(length)
        seen = [2 if n in hidden else token for n, token in enumerate(ids)]
        found = log_softmax(logits_of(np.array([seen])))[0]
        for n in hidden:
            allowed = [v for v in range(V) if v not in (0, 2, 3)]
            best = max(allowed, key=lambda v: found[n][v])
            ids[n], log_probs[n] = best, found[n][best]
    return ids, log_probs


@pytest.mark.parametrize("passes", [1, 2, 3, 4, 7, 23])
def test_mask_predict_equals_the_plain_version(table, passes):
    def predict(ids):
        return tf.ensure_shape(tf.numpy_function(table, [ids], tf.float32), [R, T, V])

    found = mask_predict(predict, tf.constant(LENGTHS), passes, T)
    asked = tf.function(lambda n: mask_predict(predict, tf.constant(LENGTHS), n, T))
    for row, length in enumerate(LENGTHS):
        ids, log_probs = plain_mask_predict(table, length, passes)
        assert found.token_ids[row].numpy().tolist() == ids
        np.testing.assert_allclose(found.log_probs[row], log_probs, atol=1e-4)
        mean = np.sum(log_probs) / max(length, 1)
        assert float(found.mean[row]) == pytest.approx(mean, abs=1e-4)
    in_graph = asked(tf.constant(passes))
    np.testing.assert_array_equal(in_graph.token_ids, found.token_ids)


def test_passes_below_1_are_refused():
    with pytest.raises(ValueError, match="passes must be an integer of at least 1, got 0"):
        mask_predict(None, tf.constant([1]), 0, 1)


def test_most_likely_lengths_by_hand():
    """From two tokens fewer to two more; impossible lengths are never chosen."""
    logits = tf.constant([[9.0, 1.0, 2.0, 3.0, 0.5]] * 4)
    found = likeliest_lengths(logits, tf.constant([5, 2, 1, 30]), longest=6, count=3)
    # 5: 3 6 5 (7 is too long); 2: 3 2 1 or 4; 1: 2 1 3; 30: none is possible.
    assert found.numpy().tolist() == [[3, 6, 5], [3, 2, 1], [2, 1, 3], [6, 6, 6]]
    short = likeliest_lengths(logits[:1], tf.constant([1]), longest=2, count=7)
    assert short.numpy().tolist() == [[2, 1, 2, 2, 2, 2, 2]]


def test_special_tokens_are_never_chosen():
    logits = np.full((1, 2, 7), 1.0, "float32")
    logits[0, :, :4] = [9.0, 1.5, 8.0, 7.0]
    found = said(tf.constant(logits), is_text)
    assert found.token_ids.numpy().tolist() == [[1, 1]]
    expected = 1.5 - np.log(np.exp(logits[0, 0]).sum())
    np.testing.assert_allclose(found.log_probs, [[expected] * 2], rtol=1e-5)


def test_ctc_collapse_equals_the_plain_version(rng):
    logits = rng.normal(size=(29, 13, 7)).astype("float32")
    logits[:, :, 0] += 1.0
    logits[0, :, 0] += 50.0  # blank at each position: an empty text
    found, log_probs = collapsed(tf.constant(logits)), log_softmax(logits)
    for row in range(29):
        best = [max((0, 1, 4, 5, 6), key=lambda v: logits[row, t, v]) for t in range(13)]
        groups = [token for token, _ in itertools.groupby(best)]
        expected = [token for token in groups if token != 0]
        ids = found.token_ids[row].numpy().tolist()
        assert ids == expected + [0] * (len(ids) - len(expected))
        total = sum(log_probs[row, t, token] for t, token in enumerate(best))
        np.testing.assert_allclose(tf.reduce_sum(found.log_probs[row]), total, rtol=1e-4)


def test_tokens_end_at_the_first_eos(rng):
    logits = rng.normal(size=(29, 13, 7)).astype("float32")
    logits[0, :, 3] = -50.0  # never
    logits[1, 0, 3] = 50.0  # at once
    found, log_probs = up_to_eos(tf.constant(logits)), log_softmax(logits)
    for row in range(29):
        best = [max((1, 3, 4, 5, 6), key=lambda v: logits[row, t, v]) for t in range(13)]
        expected = list(itertools.takewhile(lambda token: token != 3, best))
        ids = found.token_ids[row].numpy().tolist()
        assert ids == expected + [0] * (len(ids) - len(expected))
        total = sum(log_probs[row, t, token] for t, token in enumerate(expected))
        np.testing.assert_allclose(tf.reduce_sum(found.log_probs[row]), total, rtol=1e-4, atol=1e-6)
