"""Allowed next tokens and length penalties, by hand and by NumPy."""

import numpy as np
import pytest
import search_oracle as oracle
import tensorflow as tf
from search_oracle import BOS, EOS, PAD
from toy import T, V

from tfformer.search import (
    length_penalty,
)
from tfformer.search.rules import allowed_log_probs


def test_length_penalty_by_hand():
    assert float(length_penalty(7, 1.0)) == 2
    assert float(length_penalty(1, 0.6)) == 1
    assert float(length_penalty(19, 0.5)) == 2
    assert float(length_penalty(9, 0.5, "power")) == 3
    assert float(length_penalty(1, 2.0, "power")) == 1
    for form in ("gnmt", "power"):
        np.testing.assert_array_equal(length_penalty([1, 5, 17], 0.0, form), [1, 1, 1])


def test_length_penalty_refuses_an_unknown_form():
    with pytest.raises(ValueError, match="form .*'gnmt', 'power'.* got 'linear'"):
        length_penalty(3, 1.0, "linear")


def test_allowed_log_probs_are_the_log_softmax_over_the_whole_vocabulary(rng):
    logits = rng.normal(scale=3, size=(2, 3, V)).astype("float32")
    expected = oracle.log_softmax(logits)
    found = allowed_log_probs(logits, 1, T).numpy()
    free = [v for v in range(V) if v not in (PAD, BOS)]
    np.testing.assert_allclose(found[..., free], expected[..., free], rtol=1e-5, atol=1e-6)
    assert np.isneginf(found[..., [PAD, BOS]]).all()
    last = allowed_log_probs(logits, T - 1, T).numpy()
    np.testing.assert_allclose(last[..., EOS], expected[..., EOS], rtol=1e-5, atol=1e-6)
    assert np.isneginf(np.delete(last, EOS, axis=-1)).all()


def test_log_probs_are_float32_whatever_the_logits(rng):
    logits = rng.normal(size=(1, 1, V))
    assert allowed_log_probs(tf.cast(logits, tf.bfloat16), 0, T).dtype == tf.float32
