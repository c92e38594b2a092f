"""Beam search: extends the W best hypotheses of a sentence, one token at a time."""

import dataclasses
import functools
from collections.abc import Sequence

import tensorflow as tf

from tfformer.annotations import Tensor
from tfformer.config import EOS, PAD
from tfformer.config.search_options import OPTIONS, takes_second_names
from tfformer.search import hypotheses
from tfformer.search.hypotheses import (
    IMPOSSIBLE,
    Hypotheses,
    SearchResult,
    check,
    check_rules,
    limits,
    prompt_ids,
    result,
)
from tfformer.search.loop import search_in_blocks
from tfformer.search.loop_xla import search_by_doubling
from tfformer.search.rules import (
    ban_ngrams,
    coverage_scores,
    forced_token,
    is_end,
    likeliest,
    may_be_found,
    penalise_repetition,
)
from tfformer.search.step import State, StepFunction

# What `keep` can name, and the names of these values in the history.
KEPT = {
    "token_log_probs": ("token_log_probs",),
    "alignment": ("alignment",),
    "steps": ("parents", "scores"),
}


@takes_second_names
def beam_search(
    step: StepFunction,
    state: State,
    batch_size: int | Tensor,
    max_length: int | Tensor,
    beam_width: int | Tensor = 4,
    length_penalty: float | Tensor = 0.6,
    length_penalty_form: str = "gnmt",
    num_results: int | None = None,
    prefix: Tensor | None = None,
    skip: Tensor | None = None,
    *,
    min_length: int | Tensor = 0,
    coverage_penalty: float | Tensor | None = None,
    repetition_penalty: float | Tensor | None = None,
    no_repeat_ngram: int | Tensor | None = None,
    source_mask: Tensor | None = None,
    keep: Sequence[str] = (),
    xla: bool = False,
    prompt: Tensor | None = None,
    ends: Sequence[int | Tensor] = (),
) -> SearchResult:
    """Extends the W best hypotheses of each sentence, one token at a time.

    A finished hypothesis keeps its beam but does not grow. A sentence is settled when its
    `num_results` best hypotheses are finished and no open one can overtake them. An open
    log-probability can only fall, so log P / penalty(max_length) is an upper bound of its score.

    Options left at None add no operations. A number may be a tensor. `alpha`, `penalty_form` and
    `coverage` are second names of `length_penalty`, `length_penalty_form` and `coverage_penalty`.

    Args:
        step, state: see `tfformer.search`.
        batch_size: B, an integer or a scalar tensor.
        max_length: the maximum length of a sequence, including eos: one number, or int32 [B].
        beam_width: W. Default 4.
        length_penalty: alpha, not negative; 0 means no penalty. Default 0.6.
        length_penalty_form: `"gnmt"` (default) or `"power"`.
        num_results: how many of the W hypotheses to return, an integer. A smaller number ends the
            search earlier. Default: all.
        prefix: int32 [B, P], P >= 1, padded with 0: the first tokens of each result, which become
            part of it. Default: none.
        skip: boolean [B], rows that are not searched: length 0, score 0. Default: none.
        min_length: the minimum length of a sequence, including eos. `max_length` and `prefix` take
            precedence. Default 0.
        coverage_penalty: beta, not negative. beta * sum_s log(min(total attention on source token
            s, 1)) is added to a score (Wu et al. 2016, equation 14). The step function must return
            its attention, and `source_mask` is required. Default None.
        repetition_penalty: at least 1; see `penalise_repetition`. Default None.
        no_repeat_ngram: n, in [0, 8]: no n consecutive tokens occur twice. 0 sets no rule. Default
            None.
        source_mask: boolean [B, S], True = token; for `coverage_penalty`.
        keep: the values to keep, any of: `"token_log_probs"`; `"alignment"`, for which the step
            function must return its attention; and `"steps"`, all beams after each step.
            Default: none.
        xla: whether XLA compiles the loop (`search_by_doubling` instead of `search_in_blocks`). XLA
            must be able to compile the step function. Default False.
        prompt: int32 [B, P], padded with 0 on the left. The search continues it instead of bos, and
            results do not include it. The cache of `state` has P positions and contains all tokens
            but the last, in the first beam of each sentence. Default: bos.
        ends: ids that end a sequence as eos does, and are its last token. Default: none.

    Returns:
        A `SearchResult` with W = `num_results`.

    Raises:
        ValueError: an option breaks its rule, or is given by both of its names; `source_mask` is
            missing with `coverage_penalty`; the step does not return its attention; or the prompt
            is not [B, P].

    Example, in which bos (2) is followed by 5, 5 by 4, and 4 by eos (3):
        >>> after = tf.constant([0, 0, 5, 0, 3, 4])
        >>> def step(ids, position, visible, state):
        ...     return StepResult(9.0 * tf.one_hot(tf.gather(after, ids), 6), state.cache)
        >>> found = beam_search(step, State(), 1, max_length=7, beam_width=3, num_results=1)
        >>> found.token_ids.numpy().tolist(), found.lengths.numpy().tolist()
        ([[[5, 4, 3]]], [[3]])
    """
    check(max_length, batch_size=(batch_size, 0))
    prompt = None if prompt is None else prompt_ids(prompt, batch_size)
    beam = Beam(
        beam_width,
        beam_width if num_results is None else num_results,
        length_penalty,
        length_penalty_form,
        min_length,
        coverage_penalty,
        repetition_penalty,
        no_repeat_ngram,
        tuple(keep),
        0 if prompt is None else (prompt.shape[1] or tf.shape(prompt)[1]) - 1,
        ends,
    )
    beam.check(max_length, source_mask)
    limit = limits(max_length, batch_size)
    given = {"limit": limit, "final_penalty": beam.penalty(limit)}
    if prefix is not None:
        given["prefix"] = tf.convert_to_tensor(prefix, tf.int32)
    if coverage_penalty is not None:
        given["source_mask"] = tf.convert_to_tensor(source_mask, tf.bool)
    start = beam.start(batch_size, skip, given, prompt)
    search = search_by_doubling if xla else search_in_blocks
    advance = functools.partial(beam.advance, step)
    return result(search(advance, beam.settled, start, state), beam.wanted, beam.first)


@dataclasses.dataclass(frozen=True)
class Beam:
    """The rules of one beam search: the arguments of `beam_search`, under the same names.

    width: W.
    wanted: how many of the W to return.
    first: the last position of the prompt, 0 for bos.
    """

    width: int
    wanted: int
    length_penalty: float
    length_penalty_form: str
    min_length: int
    coverage_penalty: float | None
    repetition_penalty: float | None
    no_repeat_ngram: int | None
    keep: tuple
    first: int
    ends: Sequence = ()

    def check(self, max_length, source_mask):
        """Raises a ValueError for a number that breaks a rule. The service checks tensors."""
        check(
            max_length,
            beam_width=(self.width, 1),
            length_penalty=(self.length_penalty, 0),
            min_length=(self.min_length, 0),
            num_results=(self.wanted, 1),
        )
        OPTIONS["length_penalty_form"].checked(self.length_penalty_form)
        if not tf.is_tensor(self.width) and self.wanted > self.width:
            raise ValueError(
                f"num_results must be at most beam_width = {self.width}, got {self.wanted}"
            )
        check_rules(
            max_length,
            coverage_penalty=self.coverage_penalty,
            repetition_penalty=self.repetition_penalty,
            no_repeat_ngram=self.no_repeat_ngram,
        )
        if self.coverage_penalty is not None and source_mask is None:
            raise ValueError("source_mask is needed with coverage_penalty, got None")
        if not set(self.keep) <= set(KEPT):
            raise ValueError(f"keep must be a sequence of {', '.join(KEPT)}, got {self.keep!r}")

    @property
    def no_early_eos(self):
        return tf.is_tensor(self.min_length) or self.min_length > 1

    @property
    def num_candidates(self):
        """How many tokens to take so that W are allowed; pad, bos and an early eos are not."""
        return self.width + 2 + (1 + len(self.ends) if self.no_early_eos else 0)

    def penalty(self, length):
        return hypotheses.length_penalty(length, self.length_penalty, self.length_penalty_form)

    def start(self, batch_size, skip, given, prompt):
        """All W beams start equal. Only the first counts, or all beams would stay equal."""
        log_probs = tf.where(tf.range(self.width) == 0, 0.0, IMPOSSIBLE)
        log_probs = tf.tile(log_probs[None], [batch_size, 1])
        kept = [name for kind in self.keep for name in KEPT[kind]]
        h = Hypotheses.start(batch_size, self.width, log_probs, skip, given, kept, prompt)
        if self.coverage_penalty is None:
            return h
        shape = [batch_size, self.width, tf.shape(given["source_mask"])[1]]
        return h._replace(coverage=tf.zeros(shape))

    def settled(self, h):
        """Boolean [B]: no further step can change the results."""
        hope = tf.reduce_max(tf.where(h.finished, IMPOSSIBLE, h.log_probs), axis=1)
        hope /= h.given["final_penalty"]
        # The hypotheses are sorted, so an open one must overtake the first `wanted`.
        open_ones = h.finished | (h.log_probs == IMPOSSIBLE)
        closed = tf.reduce_all(open_ones[:, : self.wanted], axis=1)
        return closed & ((h.scores[:, self.wanted - 1] > hope) | (hope == IMPOSSIBLE))

    def advance(self, step, position, h, state):
        """Run one position: returns the hypotheses with one more token, and the cache."""
        # 1. The model's logits of every next token.
        logits, cache, attention = step(h.ids, position, h.visible(), state)
        logits = tf.cast(logits, tf.float32)
        if attention is None and (self.coverage_penalty is not None or "alignment" in self.keep):
            raise ValueError(
                "coverage_penalty and keep='alignment' need a step that gives its attention, "
                "got None"
            )
        # 2. The most probable tokens of each hypothesis, and the log-probabilities that they add.
        tokens, gains = self.candidates(logits, position, h)
        if self.coverage_penalty is not None:
            h = h._replace(coverage=h.coverage + tf.where(h.finished[..., None], 0.0, attention))
        # 3. The score of every continuation of every hypothesis.
        totals = h.log_probs[:, :, None] + gains  # [B, W, n]
        lengths = h.lengths + tf.cast(~h.finished, tf.int32)
        scores = totals / self.penalty(tf.maximum(lengths, 1))[:, :, None]
        if self.coverage_penalty is not None:
            scores += self.coverage(h)[:, :, None]
        # 4. The W best continuations.
        count = tokens.shape[2] or tf.shape(tokens)[2]
        in_one_row = [-1, self.width * count]
        scores, chosen = tf.math.top_k(tf.reshape(scores, in_one_row), k=self.width)  # [B, W]
        parents = chosen // count

        def of_chosen(candidates):
            return tf.gather(tf.reshape(candidates, in_one_row), chosen, batch_dims=1)  # [B, W]

        token = of_chosen(tokens)
        # 5. Each new hypothesis takes over the values of its parent.
        values = {"token_ids": token}
        if "token_log_probs" in self.keep:
            values["token_log_probs"] = of_chosen(gains)
        if "alignment" in self.keep:
            attended = tf.argmax(attention, axis=-1, output_type=tf.int32)
            values["alignment"] = tf.gather(attended, parents, batch_dims=1)
        if "steps" in self.keep:
            # A settled sentence still runs while others are open. These steps are not recorded.
            goes_on = tf.cast(~self.settled(h), tf.int32)[:, None]
            values |= {"parents": (1 + parents) * goes_on, "scores": scores}
        h = h._replace(lengths=lengths).descend(parents).write(position + 1, **values)
        h = h._replace(
            ids=token,
            log_probs=of_chosen(totals),
            scores=scores,
            finished=h.finished | is_end(token, self.ends),
        )
        return h, cache

    def coverage(self, h):
        """The coverage penalty of each hypothesis, [B, W]; 0 for a skipped row."""
        counts = h.given["source_mask"][:, None] & (~h.finished | (h.lengths > 0))[..., None]
        return coverage_scores(h.coverage, counts, self.coverage_penalty)

    def candidates(self, logits, position, h):
        """Tokens and their log-probabilities, [B, W, n]; they include the W most probable ones."""
        if self.repetition_penalty is not None:
            logits = penalise_repetition(logits, h.paths(), self.repetition_penalty)
        values, tokens = likeliest(logits, self.num_candidates)
        # log softmax of these tokens only. The first is the maximum, which avoids overflow in exp.
        top = values[..., :1]
        normaliser = top + tf.math.log(tf.reduce_sum(tf.exp(logits - top), -1, keepdims=True))
        if self.no_repeat_ngram is not None:
            banned = ban_ngrams(logits, h.paths(), position, self.no_repeat_ngram)
            values, tokens = likeliest(banned, self.num_candidates)
        gains = tf.where(may_be_found(tokens), values - normaliser, IMPOSSIBLE)
        if self.no_early_eos:
            early = self._since_prompt(position) < self.min_length - 1
            gains = tf.where(is_end(tokens, self.ends) & early, IMPOSSIBLE, gains)
        return self._or_only(tokens, gains, logits, normaliser, position, h)

    def _or_only(self, tokens, gains, logits, normaliser, position, h):
        """The candidates; if only one token can follow, it is the first and the others are
        impossible.

        This token is eos at the last position, the token of the prefix at the beginning, and
        padding with log-probability 0 after eos.
        """
        position = self._since_prompt(position)
        last = (position >= h.given["limit"] - 1)[:, None]
        if "prefix" in h.given:
            only = tf.where(last, EOS, forced_token(h.given["prefix"], position))
            only = tf.tile(only, [1, self.width])
            single = h.finished | (only != PAD)
            cost = tf.gather(logits, only, batch_dims=2) - normaliser[..., 0]
        else:
            only, single = EOS, h.finished | last
            cost = logits[..., EOS] - normaliser[..., 0]
        only, cost = tf.where(h.finished, PAD, only), tf.where(h.finished, 0.0, cost)
        first = tf.range(tf.shape(tokens)[2]) == 0
        lone = tf.where(first, cost[..., None], IMPOSSIBLE)
        tokens = tf.where(single[..., None], only[..., None], tokens)
        return tokens, tf.where(single[..., None], lone, gains)

    def _since_prompt(self, position):
        """The position counted from the prompt's end: 0 for the first token of the result."""
        return position - self.first if tf.is_tensor(self.first) or self.first else position
