"""Sampling: draws one sequence from the model, token by token."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfformer.annotations import Tensor
from tfformer.search.greedy import Rules, search_one
from tfformer.search.hypotheses import IMPOSSIBLE, SearchResult, check, check_number
from tfformer.search.rules import likeliest
from tfformer.search.step import State, StepFunction


def sample_search(
    step: StepFunction,
    state: State,
    batch_size: int | Tensor,
    max_length: int | Tensor,
    seed: int | Tensor,
    temperature: float | Tensor = 1.0,
    top_k: int | Tensor = 0,
    top_p: float | Tensor = 1.0,
    skip: Tensor | None = None,
    *,
    min_length: int | Tensor = 0,
    prompt: Tensor | None = None,
    repetition_penalty: float | Tensor | None = None,
    no_repeat_ngram: int | Tensor | None = None,
    stop: Callable[[Tensor], Tensor] | None = None,
    force_eos: bool = True,
    ends: Sequence[int | Tensor] = (),
) -> SearchResult:
    """One sequence drawn from P(y | x)^(1 / temperature), restricted to the most probable tokens.

    Each step keeps only the `top_k` most probable tokens (Fan et al. 2018), and of those the
    smallest set with `top_p` of the probability (Holtzman et al. 2020). The draw is stateless: the
    same seed, row and batch size give the same sequence.

    Args:
        step, state, batch_size, max_length, skip, min_length, prompt, repetition_penalty,
            no_repeat_ngram, stop, force_eos, ends: as in `greedy_search`.
        seed: an integer or int32 scalar.
        temperature: positive. Default 1.
        top_k: 0 keeps all. Default 0.
        top_p: in (0, 1]; 1 keeps all. Default 1.

    Returns:
        A `SearchResult` with W = 1. Its log_probs are those of the model, without temperature.

    Raises:
        ValueError: as `greedy_search`; or `seed` is not an integer, `top_k` is not an integer of at
            least 0, `temperature` is not positive, or `top_p` is not in (0, 1].

    Example, in which bos (2) is followed by 5, 5 by 4, and 4 by eos (3):
        >>> after = tf.constant([0, 0, 5, 0, 3, 4])
        >>> def step(ids, position, visible, state):
        ...     return StepResult(9.0 * tf.one_hot(tf.gather(after, ids), 6), state.cache)
        >>> found = sample_search(step, State(), 1, max_length=7, seed=11, top_p=0.9)
        >>> found.token_ids.numpy().tolist()
        [[[5, 4, 3]]]
    """
    check(max_length, top_k=(top_k, 0))
    check_number("seed", seed)
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        check_number(name, value)
        if not tf.is_tensor(value) and not 0 < value <= (1 if name == "top_p" else value):
            raise ValueError(f"{name} must be positive, and top_p at most 1, got {value}")

    def choose(log_probs, position, rows):
        # With only the most probable token there is nothing to draw.
        return _either(
            _is(top_k, 1),
            lambda: tf.argmax(log_probs, -1, output_type=tf.int32),
            lambda: draw(log_probs / temperature, position, rows),
        )

    def draw(logits, position, rows):
        kept = keep_likeliest(logits, top_k, top_p)
        # argmax(log p + Gumbel noise) is a draw from p (Gumbel 1954). The noise of a row must not
        # depend on which other rows remain, so each part draws noise for the whole batch.
        uniform = tf.random.stateless_uniform(
            [batch_size, 1, tf.shape(kept)[-1]],
            seed=tf.stack([seed, position]),
            minval=1e-20,
            maxval=1.0,
        )
        noise = -tf.math.log(-tf.math.log(tf.gather(uniform, rows)))
        return tf.argmax(kept + noise, -1, output_type=tf.int32)

    rules = Rules(min_length, repetition_penalty, no_repeat_ngram, stop, force_eos, ends)
    return search_one(step, state, batch_size, max_length, choose, skip, prompt, rules)


def keep_likeliest(logits, top_k, top_p):
    """-inf for all but the `top_k` largest of [..., V], and then for all but the smallest set with
    `top_p` of the probability. The most probable token always stays."""
    logits = tf.convert_to_tensor(logits)
    every = _is(top_k, 0) & _is(top_p, 1)
    return _either(every, lambda: logits, lambda: _some(logits, top_k, top_p))


def _is(value, number):
    """Whether an option equals this number: a tensor for a tensor, else True or False."""
    return tf.equal(value, number) if tf.is_tensor(value) else bool(value == number)


def _either(condition, one, other):
    """`tf.cond`; for a Python condition, only the chosen branch is in the graph."""
    if tf.is_tensor(condition):
        return tf.cond(condition, one, other)
    return one() if condition else other()


def _some(logits, top_k, top_p):
    size = tf.shape(logits)[-1]
    ordered = likeliest(logits, tf.where(tf.equal(top_k, 0), size, tf.minimum(top_k, size)))[0]
    probs = tf.nn.softmax(ordered)
    before = tf.cumsum(probs, axis=-1, exclusive=True)
    # At `top_p` 1 keep all: a float32 sum reaches 1 before the last token.
    inside = (before < top_p) | tf.equal(top_p, 1.0)
    kept = tf.where(inside & (ordered > IMPOSSIBLE), ordered, float("inf"))
    return tf.where(logits >= tf.reduce_min(kept, -1, keepdims=True), logits, IMPOSSIBLE)
