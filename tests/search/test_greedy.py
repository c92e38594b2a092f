"""Greedy search gives the result of a plain one and of a beam of width 1."""

import functools

import numpy as np
import pytest
import search_oracle as oracle
from toy import Toy, V, assert_complete, assert_found, sequences

from tfformer import beam_search, greedy_search, sample_search
from tfformer.search import (
    SearchResult,
)

penalties = pytest.mark.parametrize(
    "alpha, form", [(0.0, "gnmt"), (0.6, "gnmt"), (1.7, "gnmt"), (0.6, "power"), (1.3, "power")]
)


@pytest.mark.parametrize("max_length", [1, 2, 7])
def test_greedy_search_equals_the_plain_version(max_length):
    toy = Toy(seed=1, batch=11)
    found = greedy_search(toy.step, toy.state(), toy.batch, max_length)
    assert isinstance(found, SearchResult)
    assert_complete(found, max_length)
    for b in range(toy.batch):
        ids = oracle.greedy(toy.log_probs_of(b), V, max_length)
        total = oracle.log_prob(toy.log_probs_of(b), ids)
        assert_found(found, b, [(ids, total, total)])


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"no_repeat_ngram": 9}, "no_repeat_ngram must be at most 8, got 9"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must be at least 0, got -1"),
        ({"repetition_penalty": 0.5}, "repetition_penalty must be at least 1, got 0.5"),
    ],
)
def test_rules_out_of_bounds_are_refused_by_every_search(rule, message):
    toy = Toy(seed=1, batch=2)
    for search in (beam_search, greedy_search, functools.partial(sample_search, seed=5)):
        with pytest.raises(ValueError, match=message):
            search(toy.step, toy.state(), toy.batch, 7, **rule)


@penalties
def test_beam_of_width_1_equals_greedy(alpha, form):
    toy = Toy(seed=2, batch=11)
    options = {"beam_width": 1, "alpha": alpha, "penalty_form": form}
    found = beam_search(toy.step, toy.state(1), toy.batch, 7, **options)
    greedy = greedy_search(toy.step, toy.state(), toy.batch, 7)
    for b in range(toy.batch):
        assert sequences(found, b) == sequences(greedy, b)
    np.testing.assert_allclose(found.log_probs, greedy.log_probs, rtol=1e-6)
