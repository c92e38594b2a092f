"""Sampling: one sequence drawn from the model, token by token."""

import tensorflow as tf

from tfformer.search.greedy import Rules, search_one
from tfformer.search.hypotheses import IMPOSSIBLE, check, check_number
from tfformer.search.rules import likeliest


def sample_search(
    step,
    state,
    batch_size,
    max_length,
    seed,
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    skip=None,
    *,
    min_length=0,
    prompt=None,
    repetition_penalty=None,
    no_repeat_ngram=None,
    stop=None,
    force_eos=True,
):
    """One sequence drawn from P(y | x)^(1 / temperature), cut to the likeliest tokens.

    At each step only the `top_k` likeliest tokens are kept (Fan et al. 2018), and of those the
    fewest that hold `top_p` of the probability (Holtzman et al. 2020). Stateless: the same seed
    draws the same sequence for the same row of a batch of that size.

    Args:
        step, state, batch_size, max_length, skip, min_length, prompt, repetition_penalty,
            no_repeat_ngram, stop, force_eos: as in `greedy_search`.
        seed: an integer or int32 scalar.
        temperature: positive. Default 1.
        top_k: 0 keeps all. Default 0.
        top_p: in (0, 1]; 1 keeps all. Default 1.

    Returns:
        A `SearchResult` with W = 1; its log_probs are the model's own, untempered.

    Raises:
        ValueError: as `greedy_search`; or `seed` is no integer, `top_k` none of at least 0,
            `temperature` not positive, or `top_p` not in (0, 1].

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
        # Of the likeliest alone there is nothing to draw.
        return _either(
            _is(top_k, 1),
            lambda: tf.argmax(log_probs, -1, output_type=tf.int32),
            lambda: draw(log_probs / temperature, position, rows),
        )

    def draw(logits, position, rows):
        kept = keep_likeliest(logits, top_k, top_p)
        # argmax(log p + Gumbel noise) is a draw from p (Gumbel 1954). Each row has its own noise,
        # whether the others are still there or not; so each part of a batch draws for the whole.
        uniform = tf.random.stateless_uniform(
            [batch_size, 1, tf.shape(kept)[-1]],
            seed=tf.stack([seed, position]),
            minval=1e-20,
            maxval=1.0,
        )
        noise = -tf.math.log(-tf.math.log(tf.gather(uniform, rows)))
        return tf.argmax(kept + noise, -1, output_type=tf.int32)

    rules = Rules(min_length, repetition_penalty, no_repeat_ngram, stop, force_eos)
    return search_one(step, state, batch_size, max_length, choose, skip, prompt, rules)


def keep_likeliest(logits, top_k, top_p):
    """-inf for all but the `top_k` likeliest of [..., V], and of these for all but the fewest
    that hold `top_p` of the probability; the likeliest one always stays."""
    logits = tf.convert_to_tensor(logits)
    every = _is(top_k, 0) & _is(top_p, 1)
    return _either(every, lambda: logits, lambda: _some(logits, top_k, top_p))


def _is(value, number):
    """Whether an option is this number: a tensor if it is one, else True or False."""
    return tf.equal(value, number) if tf.is_tensor(value) else bool(value == number)


def _either(condition, one, other):
    """`tf.cond`, of which a graph has one side alone where it is known which."""
    if tf.is_tensor(condition):
        return tf.cond(condition, one, other)
    return one() if condition else other()


def _some(logits, top_k, top_p):
    size = tf.shape(logits)[-1]
    ordered = likeliest(logits, tf.where(tf.equal(top_k, 0), size, tf.minimum(top_k, size)))[0]
    probs = tf.nn.softmax(ordered)
    before = tf.cumsum(probs, axis=-1, exclusive=True)
    # A sum in float32 reaches 1 before the last of the tokens.
    inside = (before < top_p) | tf.equal(top_p, 1.0)
    kept = tf.where(inside & (ordered > IMPOSSIBLE), ordered, float("inf"))
    return tf.where(logits >= tf.reduce_min(kept, -1, keepdims=True), logits, IMPOSSIBLE)
