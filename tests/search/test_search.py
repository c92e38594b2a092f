"""Search over tables equals plain Python: greedy, beam, exhaustive, sampling."""

import functools

import numpy as np
import pytest
import search_oracle as oracle
import tensorflow as tf
from search_oracle import EOS, PAD
from toy import T, Toy, V, assert_complete, assert_found, sequences

from tfformer import beam_search, exhaustive_search, greedy_search, sample_search
from tfformer.search import (
    SearchResult,
    State,
    StepResult,
)
from tfformer.search import loop as blocks
from tfformer.search.loop import BLOCK

penalties = pytest.mark.parametrize(
    "alpha, form", [(0.0, "gnmt"), (0.6, "gnmt"), (1.7, "gnmt"), (0.6, "power"), (1.3, "power")]
)


@pytest.fixture
def one_group(monkeypatch):
    """Searches the whole batch in each step, as a test of the steps needs."""
    monkeypatch.setattr(blocks, "MIN_GROUPS", 1)


def run_beam(toy, max_length=T, beam_width=4, **options):
    return beam_search(
        toy.step, toy.state(beam_width), toy.batch, max_length, beam_width=beam_width, **options
    )


# ---------------------------------------------------------------- exhaustive search


@penalties
@pytest.mark.parametrize("size, max_length", [(6, 5), (7, 4), (6, 1), (5, 2)])
def test_exhaustive_search_equals_brute_force(size, max_length, alpha, form):
    toy = Toy(seed=3, size=size)
    expected = [
        oracle.best_of_all(toy.log_probs_of(b), size, max_length, alpha, form) for b in (0, 1)
    ]
    count = len(expected[0])
    found = exhaustive_search(
        toy.step, toy.state(), toy.batch, max_length, alpha, form, num_results=count
    )
    assert_complete(found, max_length)
    for b in (0, 1):
        assert_found(found, b, expected[b])


@penalties
def test_beam_wide_enough_for_all_sequences_equals_exhaustive_search(alpha, form):
    toy = Toy(seed=4)
    count = len(list(oracle.every_sequence(V, T)))
    found = run_beam(toy, beam_width=count, alpha=alpha, penalty_form=form)
    every = exhaustive_search(toy.step, toy.state(), toy.batch, T, alpha, form, num_results=count)
    for b in range(toy.batch):
        assert sequences(found, b) == sequences(every, b)
    np.testing.assert_allclose(found.scores, every.scores, rtol=1e-5)
    np.testing.assert_allclose(found.log_probs, every.log_probs, rtol=1e-5)


def test_exhaustive_refuses_more_than_a_million_sequences():
    def step(ids, position, visible, state):
        return StepResult(tf.zeros([tf.shape(ids)[0], 1, 200]), ())

    with pytest.raises(ValueError, match="max_length=4 and 200 ids"):
        exhaustive_search(step, State(), 1, 4)


# ---------------------------------------------------------------- beam search


@penalties
@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("max_length", [1, 2, 5, 8])
def test_beam_search_equals_the_plain_beam(max_length, width, alpha, form):
    toy = Toy(seed=6, batch=14, size=7)
    # A likely and an unlikely eos: hypotheses that wait in their beam, and some that are forced to
    # end.
    toy.table[:7, :, EOS] += 1
    toy.table[7:, :, EOS] -= 2
    found = run_beam(toy, max_length, width, alpha=alpha, penalty_form=form)
    assert found.token_ids.shape[:2] == found.scores.shape == found.lengths.shape == (14, width)
    for b in range(toy.batch):
        expected = oracle.beam(toy.log_probs_of(b), 7, max_length, width, alpha, form)
        real = [ids for ids in sequences(found, b) if ids]
        assert_found(SearchResult(*(x[:, : len(real)] for x in found[:4])), b, expected)


def test_results_beyond_the_possible_sequences_are_empty():
    toy = Toy(size=5)
    # unk and id 4 may come before eos: eos, unk eos, 4 eos.
    found = run_beam(toy, 2, beam_width=5)
    np.testing.assert_array_equal(np.array(found.lengths > 0), [[True] * 3 + [False] * 2] * 2)
    assert np.isneginf(found.scores[:, 3:]).all()
    assert (found.token_ids[:, 3:] == PAD).numpy().all()


@functools.cache
def counted_search(form, longest):
    """A search for one sentence in a graph, and the number of steps of all its calls."""
    toy, steps = Toy(batch=1), tf.Variable(0)

    @tf.function(autograph=False)
    def search(table, alpha, num_results):
        def step(*arguments):
            with tf.control_dependencies([steps.assign_add(1)]):
                return toy.step(*arguments)

        start = toy.state(4, table)
        return beam_search(step, start, 1, longest, 4, alpha, form, num_results=num_results)

    return search, steps


@pytest.mark.parametrize("form", ["gnmt", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_early_stopped_search_gives_the_same_best_result(alpha, form):
    counted, steps = counted_search(form, 23)

    def search(table, num_results):
        return counted(table, tf.constant(alpha), num_results)

    early = 0
    for seed in range(60):
        table = Toy(seed, batch=1, eos_bonus=0.5).table
        steps.assign(0)
        best, short = search(table, 1), int(steps)
        whole = search(table, 4)
        assert sequences(best) == sequences(whole)[:1]
        assert best.scores[0, 0] == whole.scores[0, 0]
        assert best.log_probs[0, 0] == whole.log_probs[0, 0]
        early += short < int(steps) - short
    if alpha < 2:
        assert early, "no search has stopped early, which proves nothing"


def test_finished_sentences_leave_the_batch_and_the_others_continue(one_group):
    toy = Toy(seed=20, batch=7)
    # Three sentences end at the first step; the others cannot end before the last position.
    toy.table[:, :, EOS] = -50
    toy.table[[1, 4, 5], :, EOS] = 50
    longest = 2 * BLOCK + 5
    found = run_beam(toy, longest, 2)
    assert [len(seen) for seen in toy.seen] == [7] * BLOCK + [4] * (BLOCK + 5)
    for b in range(7):
        expected = oracle.beam(toy.log_probs_of(b), V, longest, 2, 0.6)
        assert sequences(found, b)[0] == expected[0][0]
        np.testing.assert_allclose(found.scores[b, 0], expected[0][1], rtol=1e-5)


def test_each_hypothesis_keeps_the_history_of_its_parent(one_group):
    toy = Toy(seed=10, batch=5)
    run_beam(toy, 7, 3)
    for before, after in zip(toy.seen, toy.seen[1:], strict=False):
        for b in range(toy.batch):
            parents = {tuple(row) for row in before[b].tolist()}
            assert {tuple(row[:-1]) for row in after[b].tolist()} <= parents


@pytest.mark.parametrize("search", ["greedy", "beam", "one_best"])
def test_batch_gives_the_same_results_as_single_rows(search):
    batch = Toy(seed=11, batch=9)

    def run(toy):
        if search == "greedy":
            return greedy_search(toy.step, toy.state(), toy.batch, 8)
        return run_beam(toy, 8, 3, num_results=1 if search == "one_best" else None)

    together = run(batch)
    for b in range(batch.batch):
        single = Toy(batch=1)
        single.table = batch.table[b : b + 1]
        alone = run(single)
        assert sequences(alone) == sequences(together, b)
        np.testing.assert_allclose(alone.scores[0], together.scores[b], rtol=1e-6)


@pytest.mark.parametrize("search", ["greedy", "sample", "beam"])
def test_skipped_rows_are_empty_and_leave_the_others_as_they_are(search):
    toy, skip = Toy(seed=12, batch=5), tf.constant([True, False, False, True, False])

    def run(skip):
        if search == "greedy":
            return greedy_search(toy.step, toy.state(), 5, T, skip=skip)
        if search == "sample":
            return sample_search(toy.step, toy.state(), 5, T, seed=1, skip=skip)
        return run_beam(toy, T, 3, skip=skip)

    found, without = run(skip), run(None)
    for b in (0, 3):
        assert (found.lengths[b] == 0).numpy().all()
        assert (found.token_ids[b] == PAD).numpy().all()
        assert found.scores[b, 0] == found.log_probs[b, 0] == 0
    for b in (1, 2, 4):
        assert sequences(found, b) == sequences(without, b)
        np.testing.assert_array_equal(found.scores[b], without.scores[b])


@pytest.mark.parametrize("prefix", [[[4, 1], [5, 0]], [[5, 5], [1, 4]], [[0, 0], [4, 4]]])
def test_prefix_is_forced_and_the_rest_equals_the_plain_beam(prefix):
    toy = Toy(seed=13)
    found = run_beam(toy, 6, 3, prefix=tf.constant(prefix))
    assert_complete(found, 6)
    for b, row in enumerate(prefix):
        forced = tuple(token for token in row if token)
        assert all(ids[: len(forced)] == forced for ids in sequences(found, b))
        expected = oracle.beam(toy.log_probs_of(b), V, 6, 3, 0.6, forced=forced)
        assert_found(found, b, expected)


@pytest.mark.parametrize("max_length", [1, 2, 3])
def test_a_prefix_that_is_too_long_is_cut_so_that_eos_fits(max_length):
    toy = Toy(seed=15)
    found = run_beam(toy, max_length, 1, prefix=tf.constant([[4, 5, 4, 1]] * 2))
    assert_complete(found, max_length)
    assert sequences(found) == [((4, 5, 4, 1)[: max_length - 1] + (EOS,))]


def test_options_may_be_tensors_in_a_graph_without_a_known_shape():
    toy = Toy(seed=16, batch=3)

    @tf.function(autograph=False)
    def search(batch, width, alpha, max_length):
        state = toy.state(width, tf.constant(toy.table)[:batch])
        return beam_search(toy.step, state, batch, max_length, width, alpha)

    found = search(tf.constant(3), tf.constant(3), tf.constant(0.9), tf.constant(6))
    eager = run_beam(toy, 6, 3, alpha=0.9)
    for b in range(3):
        assert sequences(found, b) == sequences(eager, b)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"beam_width": 0}, "beam_width must be at least 1, got 0"),
        ({"alpha": -0.5}, "length_penalty must be at least 0, got -0.5"),
        ({"num_results": 0}, "num_results must be at least 1, got 0"),
        ({"penalty_form": "wu"}, "length_penalty_form must be one of .*, got 'wu'"),
        ({"max_length": "7"}, "max_length must be an integer, got '7'"),
        ({"beam_width": 2.5}, "beam_width must be an integer, got 2.5"),
        ({"alpha": None}, "length_penalty must be a number, got None"),
        ({"coverage": "a"}, "coverage_penalty must be a number, got 'a'"),
        ({"batch_size": -1}, "batch_size must be at least 0, got -1"),
        (
            {"prompt": [[2]]},
            r"prompt must be integers \[B, P\] with B = .* = 2, got int32 \(1, 1\)",
        ),
        ({"prompt": [[2.0], [2.0]]}, "prompt must be integers .*, got float32"),
    ],
)
def test_beam_search_names_the_wrong_argument_and_its_value(options, message):
    toy = Toy()
    with pytest.raises(ValueError, match=message):
        beam_search(toy.step, toy.state(4), **{"batch_size": 2, "max_length": T, **options})


def test_more_results_than_beams_are_refused():
    toy = Toy()
    with pytest.raises(ValueError, match="num_results .*3.* got 4"):
        run_beam(toy, T, 3, num_results=4)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_length": -1}, "max_length must be at least 1, got -1"),
        ({"top_k": -1}, "top_k must be at least 0, got -1"),
        ({"temperature": 0}, "temperature must be positive.* got 0"),
        ({"temperature": -2.0}, "temperature must be positive.* got -2.0"),
        ({"top_p": 0}, "top_p must be positive.* got 0"),
        ({"top_p": 1.5}, "top_p .*at most 1, got 1.5"),
        ({"top_p": None}, "top_p must be a number, got None"),
        ({"temperature": "1"}, "temperature must be a number, got '1'"),
        ({"seed": None}, "seed must be an integer, got None"),
        ({"top_k": 1.5}, "top_k must be an integer, got 1.5"),
        ({"min_length": "1"}, "min_length must be an integer, got '1'"),
        ({"prompt": [2, 2]}, r"prompt must be integers \[B, P\].*, got int32 \(2,\)"),
    ],
)
def test_sample_search_names_the_wrong_argument_and_its_value(options, message):
    toy = Toy()
    with pytest.raises(ValueError, match=message):
        sample_search(
            toy.step, toy.state(), **{"batch_size": 2, "max_length": T, "seed": 0, **options}
        )


def test_more_results_than_sequences_are_refused():
    toy = Toy()
    with pytest.raises(
        ValueError, match="num_results must be at most 1, all that there are, got 2"
    ):
        exhaustive_search(toy.step, toy.state(), 2, max_length=1, num_results=2)
