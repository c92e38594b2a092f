"""Exhaustive search: scores every possible sequence, the reference for beam search."""

import tensorflow as tf

from tfformer.annotations import Tensor
from tfformer.config import BOS, EOS, PAD
from tfformer.config.search_options import OPTIONS, takes_second_names
from tfformer.search import hypotheses
from tfformer.search.hypotheses import SearchResult, check, prompt_ids
from tfformer.search.rules import allowed_log_probs
from tfformer.search.step import State, StepFunction


@takes_second_names
def exhaustive_search(
    step: StepFunction,
    state: State,
    batch_size: int,
    max_length: int,
    length_penalty: float = 0.6,
    length_penalty_form: str = "gnmt",
    num_results: int = 1,
    *,
    prompt: Tensor | None = None,
) -> SearchResult:
    """Score every possible sequence, which beam search approximates. For tiny vocabularies.

    Args:
        step, state: see `tfformer.search`. Here each prefix counts as one sentence, with W = 1.
        batch_size: B.
        max_length: T, an integer; there are about (V - 3)^(T - 1) sequences, at most 1,000,000.
        length_penalty, length_penalty_form: as in `beam_search`.
        num_results: how many of the best to return. Default 1.
        prompt: int32 [B, P], continued by each sequence, as in `beam_search`. Default: bos.

    Returns:
        A `SearchResult` with W = `num_results`.

    Raises:
        ValueError: an option breaks its rule, the prompt is not [B, P], or there are more than
            1,000,000 sequences, or fewer than `num_results`.

    Example, in which bos (2) is followed by 5, 5 by 4, and 4 by eos (3):
        >>> after = tf.constant([0, 0, 5, 0, 3, 4])
        >>> def step(ids, position, visible, state):
        ...     return StepResult(9.0 * tf.one_hot(tf.gather(after, ids), 6), state.cache)
        >>> found = exhaustive_search(step, State(), batch_size=1, max_length=3)
        >>> found.token_ids.numpy().tolist()
        [[[5, 4, 3]]]
    """
    numbers = {"batch_size": (batch_size, 0), "num_results": (num_results, 1)}
    check(max_length, length_penalty=(length_penalty, 0), **numbers)
    OPTIONS["length_penalty_form"].checked(length_penalty_form)
    prompt = prompt_ids(tf.fill([batch_size, 1], BOS) if prompt is None else prompt, batch_size)
    first = (prompt.shape[1] or tf.shape(prompt)[1]) - 1
    prefixes, known = prompt[:, None, -1:], prompt != PAD  # the real tokens of [B, P]
    log_probs = tf.zeros([batch_size, 1])
    found_ids, found_log_probs, found_lengths = [], [], []
    for position in range(max_length):
        ids = tf.reshape(prefixes[:, :, -1], [-1, 1])  # [B * N, 1]
        visible = tf.pad(known, [[0, 0], [0, position]], constant_values=True)  # [B * N, C]
        now = tf.constant(first + position)
        logits, cache, _ = step(ids, now, visible[:, None, :, None], state)
        state = state._replace(cache=cache)
        size, count = logits.shape[-1], prefixes.shape[1]
        gains = allowed_log_probs(logits, position, max_length)
        gains = tf.reshape(gains, [batch_size, count, size])  # [B, N, V]
        # Every open prefix can end here.
        ended = tf.pad(prefixes[:, :, 1:], [[0, 0], [0, 0], [0, 1]], constant_values=EOS)
        padding = max_length - 1 - position
        found_ids.append(tf.pad(ended, [[0, 0], [0, 0], [0, padding]], constant_values=PAD))
        found_log_probs.append(log_probs + gains[:, :, EOS])
        found_lengths.append(tf.fill(tf.shape(log_probs), position + 1))
        if position == max_length - 1:
            break
        # It can also continue with every other token.
        others = [v for v in range(size) if v not in (PAD, BOS, EOS)]
        if count * len(others) > 1_000_000:
            raise ValueError(
                "max_length and the vocabulary must give at most 1,000,000 sequences, got "
                f"max_length={max_length} and {size} ids"
            )
        gained = tf.gather(gains, others, axis=-1)
        log_probs = tf.reshape(log_probs[:, :, None] + gained, [batch_size, -1])  # [B, N V]
        token = tf.tile(tf.constant(others)[None, :, None], [batch_size, count, 1])
        prefixes = tf.concat([tf.repeat(prefixes, len(others), axis=1), token], axis=-1)
        prefixes = tf.ensure_shape(prefixes, [None, count * len(others), None])
        state, known = _branch(state, len(others)), tf.repeat(known, len(others), axis=0)
    kept = (found_ids, found_log_probs, found_lengths)
    token_ids, log_probs, lengths = (tf.concat(leaf, axis=1) for leaf in kept)
    known = num_results, length_penalty, length_penalty_form
    return _best(token_ids, log_probs, lengths, *known)


def _best(token_ids, log_probs, lengths, count, alpha, form):
    """The `count` best of a sentence's N sequences, as a `SearchResult`."""
    size = token_ids.shape[1]
    if size is not None and count > size:
        raise ValueError(f"num_results must be at most {size}, all that there are, got {count}")
    scores = log_probs / hypotheses.length_penalty(lengths, alpha, form)
    scores, order = tf.math.top_k(scores, k=count)
    best = (tf.gather(leaf, order, batch_dims=1) for leaf in (token_ids, log_probs, lengths))
    token_ids, log_probs, lengths = best
    return SearchResult(token_ids, scores, log_probs, lengths)


def _branch(state, count):
    """The state of each sentence, repeated `count` times, with one more position."""

    def one_more(leaf):
        return tf.pad(leaf, [[0, 0]] * (leaf.shape.rank - 2) + [[0, 1], [0, 0]])

    memory, cache = tf.nest.map_structure(lambda leaf: tf.repeat(leaf, count, axis=0), state)
    return State(memory, tf.nest.map_structure(one_more, cache))
