"""The options of beam search equal those of a plain one: coverage, repetition, n-grams, lengths."""

import numpy as np
import pytest
import search_oracle as oracle
import tensorflow as tf
from search_oracle import BOS, EOS, PAD
from toy import FACTORS, ROWS, Toy, V, assert_complete, sequences

from tfformer import beam_search, greedy_search, sample_search
from tfformer.search import StepResult
from tfformer.search.rules import BLOCK, LARGE, ban_ngrams, likeliest, penalise_repetition

B, S, W, T = 5, 3, 3, 11
MASK = np.array([[True, True, True], [True, True, False]] + [[True, True, True]] * 3)


class Attending(Toy):
    """An artificial model that attends to its source, differently for each prefix."""

    def __init__(self, seed=0, batch=B, **options):
        super().__init__(seed, batch, **options)
        scores = np.random.default_rng(seed + 100).normal(scale=2, size=(batch, ROWS, S))
        scores = np.where(MASK[:batch, None], scores, -1e9)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        self.weights = (weights / weights.sum(-1, keepdims=True)).astype("float32")

    def state(self, width=1):
        state = super().state(width)
        return state._replace(memory=(state.memory, tf.constant(self.weights)))

    def step(self, ids, position, visible, state):
        table, weights = state.memory
        result = super().step(ids, position, visible, state._replace(memory=table))
        tokens = result.cache[0]
        known = tf.reduce_sum(tf.where(visible, tokens[:, None], 0), axis=-1)[:, :, : position + 1]
        row = tf.reduce_sum((known + 1) * FACTORS[: int(position) + 1], axis=-1) % ROWS
        return StepResult(result.logits, result.cache, tf.gather(weights, row, batch_dims=1))

    def row(self, prefix):
        tokens = np.array([BOS, *prefix])
        return ((tokens + 1) * FACTORS[: len(tokens)]).sum() % ROWS

    def logits_of(self, b):
        return lambda prefix: self.table[b, self.row(prefix)]

    def attention_of(self, b):
        return lambda prefix: self.weights[b, self.row(prefix)][MASK[b]]


def search(toy, **options):
    return beam_search(toy.step, toy.state(W), B, T, W, source_mask=tf.constant(MASK), **options)


@pytest.mark.parametrize(
    "options, plain",
    [
        ({"min_length": 6}, {"min_length": 6}),
        ({"min_length": tf.constant(4)}, {"min_length": 4}),
        ({"min_length": T + 5}, {"min_length": T + 5}),
        ({"repetition_penalty": 1.7}, {"repetition": 1.7}),
        ({"no_repeat_ngram": 1}, {"ngram": 1}),
        ({"no_repeat_ngram": 2}, {"ngram": 2}),
        ({"no_repeat_ngram": tf.constant(3)}, {"ngram": 3}),
        ({"no_repeat_ngram": 0}, {}),
        ({"coverage": 0.7}, {"beta": 0.7}),
        (
            {"coverage": 0.3, "repetition_penalty": 1.2, "no_repeat_ngram": 2, "min_length": 5},
            {"beta": 0.3, "repetition": 1.2, "ngram": 2, "min_length": 5},
        ),
    ],
)
@pytest.mark.parametrize("eos_bonus", [0.5, -2.0])
def test_option_equals_the_plain_beam_search(options, plain, eos_bonus):
    toy = Attending(seed=21, eos_bonus=eos_bonus)
    found = search(toy, alpha=0.8, **options)
    assert_complete(found, T)
    for b in range(B):
        expected = oracle.beam_with(
            toy.logits_of(b), V, T, W, 0.8, attention_of=toy.attention_of(b), **plain
        )
        assert sequences(found, b)[0] == expected[0][0]
        np.testing.assert_allclose(found.scores[b], [score for _, score, _ in expected], rtol=1e-4)


def test_each_sentence_may_have_its_own_max_length():
    toy, limits = Attending(seed=24, eos_bonus=-9), [1, 2, 5, 8, 11]
    found = beam_search(toy.step, toy.state(W), B, tf.constant(limits), W)
    greedy = greedy_search(toy.step, toy.state(), B, tf.constant(limits))
    for b, limit in enumerate(limits):
        expected = oracle.beam(toy.log_probs_of(b), V, limit, W, 0.6)
        assert sequences(found, b)[0] == expected[0][0]
        assert sequences(greedy, b)[0] == oracle.greedy(toy.log_probs_of(b), V, limit)


def test_min_length_applies_to_greedy_and_sampling():
    toy = Attending(seed=25, eos_bonus=3)
    for found in (
        greedy_search(toy.step, toy.state(), B, T, min_length=7),
        sample_search(toy.step, toy.state(), B, T, seed=1, min_length=7),
    ):
        assert_complete(found, T)
        assert (found.lengths >= 7).numpy().all()


def test_token_log_probs_sum_up_and_alignment_is_the_maximum_attention():
    toy = Attending(seed=26)
    found = search(toy, keep=("token_log_probs", "alignment"))
    np.testing.assert_allclose(tf.reduce_sum(found.token_log_probs, -1), found.log_probs, rtol=1e-5)
    assert found.token_log_probs.shape == found.alignment.shape == found.token_ids.shape
    for b in range(B):
        for w, ids in enumerate(sequences(found, b)):
            for n, token in enumerate(ids):
                expected = toy.log_probs_of(b)(ids[:n])[token]
                np.testing.assert_allclose(found.token_log_probs[b, w, n], expected, rtol=1e-4)
                assert found.alignment[b, w, n] == toy.attention_of(b)(ids[:n]).argmax()
            assert not found.token_log_probs[b, w, len(ids) :].numpy().any()
            assert not found.alignment[b, w, len(ids) :].numpy().any()


@pytest.mark.parametrize("wanted", [1, W])
def test_kept_steps_equal_the_plain_beam_in_any_batch(wanted):
    toy, rows = Attending(seed=27), []
    whole = search(toy, keep=("steps",), num_results=wanted).steps
    for b in range(B):
        alone = Attending(seed=27)
        alone.table, alone.weights = toy.table[b : b + 1], toy.weights[b : b + 1]
        found = beam_search(
            alone.step, alone.state(W), 1, T, W, num_results=wanted, keep=("steps",)
        ).steps
        count = found.token_ids.shape[1]
        rows.append(count)
        for mine, own in zip(whole, found, strict=True):
            np.testing.assert_allclose(mine[b, :count], own[0], rtol=1e-5)
        assert (whole.parents[b, count:] == -1).numpy().all()
        assert not whole.token_ids[b, count:].numpy().any()
        # At each step, a hypothesis is an earlier one with one more token.
        paths = [()] * W
        for t in range(count):
            parents, tokens = found.parents[0, t].numpy(), found.token_ids[0, t].numpy()
            paths = [paths[p] + (k,) * bool(k) for p, k in zip(parents, tokens, strict=True)]
            expected = oracle.steps(toy.log_probs_of(b), V, T, W, 0.6)[t]
            assert paths == [ids for ids, _ in expected]
            np.testing.assert_allclose(found.scores[0, t], [s for _, s in expected], rtol=1e-5)
    assert max(rows) == whole.token_ids.shape[1]
    if wanted == 1:  # some are settled earlier
        assert min(rows) < max(rows)


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, LARGE + BLOCK - 1, 5003])
@pytest.mark.parametrize("count", [1, 6, 67])
def test_most_likely_tokens_equal_top_k(rng, size, count):
    logits = rng.normal(size=(2, 3, size)).astype("float32")
    logits[0, 1, 7:] = -np.inf
    for wanted in (count, tf.constant(count)):
        values, tokens = likeliest(tf.constant(logits), wanted)
        expected, _ = tf.math.top_k(logits, count)
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(tf.gather(logits, tokens, batch_dims=2), values)
        for row in np.ndindex(2, 3):
            assert len(set(tokens.numpy()[row].tolist())) == count


def test_banned_ngrams_by_hand():
    # bos 4 5 6 4 5: 6 came after "4 5" and after "5", and 4, 5, 6 occurred.
    paths = tf.constant([[[BOS, 4, 5, 6, 4, 5, PAD, PAD]]])
    for n, banned in ((1, {4, 5, 6}), (2, {6}), (3, {6}), (4, set()), (0, set())):
        logits = ban_ngrams(tf.zeros([1, 1, 9]), paths, 5, n)[0, 0].numpy()
        assert set(np.flatnonzero(np.isneginf(logits))) == banned, n


def test_repetition_penalty_by_hand():
    paths = tf.constant([[[BOS, 4, 5, 4, PAD]]])
    logits = tf.constant([[[1.0, 1, 1, 1, 2, -2, 3, -3]]])
    found = penalise_repetition(logits, paths, 2.0)
    np.testing.assert_array_equal(found, [[[1, 1, 1, 1, 1, -4, 3, -3]]])
    assert EOS == 3


@pytest.mark.parametrize(
    "options, message",
    [
        ({"coverage": -1}, "coverage_penalty must be at least 0, got -1"),
        ({"repetition_penalty": 0.5}, "repetition_penalty must be at least 1, got 0.5"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must be at least 0, got -1"),
        ({"no_repeat_ngram": 9}, "no_repeat_ngram must be at most 8, got 9"),
        ({"keep": ("scores",)}, "keep must be a sequence of .* got .*scores"),
    ],
)
def test_error_names_an_option_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        search(Attending(), **options)


def test_coverage_without_a_source_mask_is_refused():
    toy = Attending()
    with pytest.raises(ValueError, match="source_mask is needed"):
        beam_search(toy.step, toy.state(W), B, T, W, coverage=0.1)


# Searches with one hypothesis.


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram": 1},
        {"no_repeat_ngram": tf.constant(2), "min_length": 6},
        {"repetition_penalty": tf.constant(1.2), "no_repeat_ngram": 2},
    ],
)
@pytest.mark.parametrize("search", [greedy_search, sample_search])
def test_greedy_search_with_rules_equals_a_beam_of_width_1(search, options):
    """The same holds for sampling from the most likely token only."""
    toy = Attending(seed=24, eos_bonus=-2)
    one = {"seed": 5, "top_k": 1} if search is sample_search else {}
    found = search(toy.step, toy.state(), B, T, **options, **one)
    expected = beam_search(toy.step, toy.state(), B, T, 1, 0.0, **options)
    free = greedy_search(toy.step, toy.state(), B, T)
    for b in range(B):
        assert sequences(found, b) == sequences(expected, b)
    np.testing.assert_allclose(found.log_probs, expected.log_probs, rtol=1e-5)
    assert any(sequences(found, b) != sequences(free, b) for b in range(B))


def test_sequence_ends_where_stop_is_true():
    """The text so far is kept, without eos; `stop` receives the newest tokens."""
    toy, seen = Attending(seed=25, eos_bonus=-2), []

    def stop(newest):
        seen.append(newest.numpy())
        return tf.reduce_any(newest == 5, axis=1)

    found = greedy_search(toy.step, toy.state(), B, T, stop=stop)
    free = greedy_search(toy.step, toy.state(), B, T)
    for b in range(B):
        [whole], [cut] = sequences(free, b), sequences(found, b)
        end = whole.index(5) + 1 if 5 in whole else len(whole)
        assert cut == whole[:end] and len(cut) == found.lengths[b, 0]
    assert any(5 in sequences(found, b)[0] for b in range(B))
    assert max(newest.shape[1] for newest in seen) <= T
    assert not any((newest == BOS).any() for newest in seen)


@pytest.mark.parametrize("min_length", [0, 4])
def test_sequence_ends_with_eos_or_an_end_id(min_length):
    """Token by token and with a beam; no end comes too early."""
    toy, rule = Attending(seed=25, eos_bonus=-2), {"min_length": min_length}
    found = greedy_search(toy.step, toy.state(), B, T, ends=(5, 7), **rule)
    expected = beam_search(toy.step, toy.state(), B, T, 1, 0.0, ends=(5, 7), **rule)
    free = greedy_search(toy.step, toy.state(), B, T, **rule)
    for b in range(B):
        [own], [whole] = sequences(found, b), sequences(free, b)
        assert [own] == sequences(expected, b)
        places = [n for n, token in enumerate(whole) if token in (EOS, 5, 7)]
        if not min_length:
            assert own == whole[: places[0] + 1] and len(own) == found.lengths[b, 0]
        assert len(own) >= min_length and not {EOS, 5, 7} & set(own[:-1])
    best = beam_search(toy.step, toy.state(), B, T, 4, 0.6, ends=(5, 7), **rule)
    every = [own for b in range(B) for own in sequences(best, b)]
    assert all(own[-1] in (EOS, 5, 7) and len(own) >= min_length for own in every)
    assert not any({EOS, 5, 7} & set(own[:-1]) for own in every)
    assert {5, 7} & {own[-1] for own in every}
