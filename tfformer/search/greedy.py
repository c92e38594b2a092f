"""Greedy search: takes the most probable token at each step. Sampling shares its search of one
hypothesis."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfformer.annotations import Tensor
from tfformer.config import PAD
from tfformer.search.hypotheses import (
    Hypotheses,
    SearchResult,
    check,
    check_rules,
    limits,
    prompt_ids,
    result,
)
from tfformer.search.loop import search_in_blocks
from tfformer.search.rules import allowed_log_probs, ban_ngrams, is_end, penalise_repetition
from tfformer.search.step import State, StepFunction

# The maximum number of newest tokens that `stop` receives.
RECENT = 32


def greedy_search(
    step: StepFunction,
    state: State,
    batch_size: int | Tensor,
    max_length: int | Tensor,
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
    """Takes the most probable token at each step.

    Args:
        step, state: see `tfformer.search`.
        batch_size: B, an integer or a scalar tensor.
        max_length: the maximum length of a sequence, including eos: one number, or int32 [B].
        skip: boolean [B], rows that are not searched: length 0, score 0. Default: none.
        min_length: the minimum length of a sequence, including eos. Default 0.
        prompt: int32 [B, P], continued by the search, as in `beam_search`. Default: bos.
        repetition_penalty, no_repeat_ngram: as in `beam_search`. Default: none.
        stop: a function of the newest tokens, int32 [B, n] with n at most 32, that returns boolean
            [B]. True ends a sequence there, without eos. Default: only eos ends a sequence.
        force_eos: whether a sequence that reaches `max_length` must end with eos. If False, the
            model chooses its last token too; without eos the sequence is cut. Default True.
        ends: ids that end a sequence as eos does, and are its last token. Default: none.

    Returns:
        A `SearchResult` with W = 1 and without a length penalty.

    Raises:
        ValueError: `max_length` is not an integer of at least 1, `min_length` or `batch_size` is
            not an integer of at least 0, `no_repeat_ngram` is not in [0, 8], `repetition_penalty`
            is below 1, or the prompt is not [B, P].

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

    rules = Rules(min_length, repetition_penalty, no_repeat_ngram, stop, force_eos, ends)
    return search_one(step, state, batch_size, max_length, choose, skip, prompt, rules)


class Rules(NamedTuple):
    """The rules of a search of one hypothesis: arguments of `greedy_search`, by the same names."""

    min_length: int = 0
    repetition_penalty: float | None = None
    no_repeat_ngram: int | None = None
    stop: Callable | None = None
    force_eos: bool = True
    ends: Sequence = ()

    def check(self, max_length):
        """Raises a ValueError for a number that breaks a rule. The service checks tensors."""
        check(max_length, min_length=(self.min_length, 0))
        check_rules(
            max_length,
            repetition_penalty=self.repetition_penalty,
            no_repeat_ngram=self.no_repeat_ngram,
        )

    def log_probs(self, logits, position, found, h):
        """log P of each next token, float32 [B, 1, V]; -inf for a token that is not allowed.
        `found` is the number of tokens since the prompt."""
        logits = tf.cast(logits, tf.float32)
        if self.repetition_penalty is not None:
            logits = penalise_repetition(logits, h.paths(), self.repetition_penalty)
        limits = h.given["limit"], self.min_length
        gains = allowed_log_probs(logits, found, *limits, self.force_eos, self.ends)
        if self.no_repeat_ngram is not None:
            gains = ban_ngrams(gains, h.paths(), position, self.no_repeat_ngram)
        return gains

    def ended(self, position, h, first):
        """The hypotheses; finished where the token after `position` completes a stop."""
        if self.stop is None:
            return h
        begin = tf.maximum(first + 1, position + 2 - RECENT)
        ends = self.stop(h.paths()[:, 0, begin : position + 2])[:, None]  # [B, 1]
        return h._replace(finished=h.finished | ends)


def search_one(step, state, batch_size, max_length, choose, skip, prompt, rules):
    """Search one hypothesis for each sentence. `choose(log_probs [B, 1, V], t, rows)` returns the
    next token."""
    check(max_length, batch_size=(batch_size, 0))
    rules.check(max_length)
    prompt = None if prompt is None else prompt_ids(prompt, batch_size)
    first = 0 if prompt is None else (prompt.shape[1] or tf.shape(prompt)[1]) - 1

    def settled(h):
        finished = h.finished[:, 0]
        return finished if rules.force_eos else finished | (h.lengths[:, 0] >= h.given["limit"])

    def advance(position, h, state):
        logits, cache, _ = step(h.ids, position, h.visible(), state)
        found = position if prompt is None else position - first
        gains = rules.log_probs(logits, position, found, h)
        token = choose(gains, found, h.given["row"])
        gain = tf.where(h.finished, 0.0, tf.gather(gains, token, batch_dims=2))
        token = tf.where(h.finished, PAD, token)
        log_probs = h.log_probs + gain
        h = h._replace(
            ids=token,
            log_probs=log_probs,
            scores=log_probs,
            lengths=h.lengths + tf.cast(~h.finished, tf.int32),
            finished=h.finished | is_end(token, rules.ends),
        ).write(position + 1, token_ids=token)
        return rules.ended(position, h, first), cache

    given = {"limit": limits(max_length, batch_size)}
    start = Hypotheses.start(batch_size, 1, tf.zeros([batch_size, 1]), skip, given, prompt=prompt)
    return result(search_in_blocks(advance, settled, start, state), 1, first)
