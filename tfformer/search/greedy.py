"""Greedy search: the most probable token at each step; and the search of one hypothesis that it
shares with sampling."""

import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.search.hypotheses import Hypotheses, check, limits, prompt_ids, result
from tfformer.search.loop import search_in_blocks
from tfformer.search.rules import allowed_log_probs


def greedy_search(step, state, batch_size, max_length, skip=None, *, min_length=0, prompt=None):
    """The most probable token at each step.

    Args:
        step, state: see `tfformer.search`.
        batch_size: B, an integer or a scalar tensor.
        max_length: the longest sequence, eos counted; one for all or int32 [B].
        skip: boolean [B], rows that are not searched: length 0, score 0. Default: none.
        min_length: the shortest sequence, eos counted. Default 0.
        prompt: int32 [B, P], what the search begins after, as in `beam_search`. Default: bos.

    Returns:
        A `SearchResult` with W = 1 and without a length penalty.

    Raises:
        ValueError: `max_length` is no integer of at least 1, `min_length` or `batch_size` none of
            at least 0, or the prompt is not [B, P].

    Example, in which bos (2) is followed by 5, 5 by 4, and 4 by eos (3):
        >>> after = tf.constant([0, 0, 5, 0, 3, 4])
        >>> def step(ids, position, visible, state):
        ...     return StepResult(9.0 * tf.one_hot(tf.gather(after, ids), 6), state.cache)
        >>> found = greedy_search(step, State(), batch_size=1, max_length=7)
        >>> found.token_ids.numpy().tolist()
        [[[5, 4, 3]]]
    """

    def choose(log_probs, position, rows):
        return tf.argmax(log_probs, axis=-1, output_type=tf.int32)

    return search_one(step, state, batch_size, max_length, choose, skip, min_length, prompt)


def search_one(step, state, batch_size, max_length, choose, skip, min_length, prompt):
    """One hypothesis a sentence, by the token that `choose(log_probs [B, 1, V], t, rows)` picks."""
    check(max_length, batch_size=(batch_size, 0), min_length=(min_length, 0))
    prompt = None if prompt is None else prompt_ids(prompt, batch_size)
    first = 0 if prompt is None else (prompt.shape[1] or tf.shape(prompt)[1]) - 1

    def settled(h):
        return h.finished[:, 0]

    def advance(position, h, state):
        logits, cache, _ = step(h.ids, position, h.visible(), state)
        found = position if prompt is None else position - first
        gains = allowed_log_probs(logits, found, h.given["limit"], min_length)
        token = choose(gains, found, h.given["row"])
        gain = tf.where(h.finished, 0.0, tf.gather(gains, token, batch_dims=2))
        token = tf.where(h.finished, PAD, token)
        log_probs = h.log_probs + gain
        h = h._replace(
            ids=token,
            log_probs=log_probs,
            scores=log_probs,
            lengths=h.lengths + tf.cast(~h.finished, tf.int32),
            finished=h.finished | (token == EOS),
        )
        return h.write(position + 1, token_ids=token), cache

    given = {"limit": limits(max_length, batch_size)}
    start = Hypotheses.start(batch_size, 1, tf.zeros([batch_size, 1]), skip, given, prompt=prompt)
    return result(search_in_blocks(advance, settled, start, state), 1, first)
