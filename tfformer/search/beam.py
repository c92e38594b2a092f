"""Beam search: the best of W hypotheses that are extended side by side."""

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD
from tfformer.search.hypotheses import (
    IMPOSSIBLE,
    Hypotheses,
    check,
    length_penalty,
    limits,
    result,
)
from tfformer.search.loop import search_in_rounds
from tfformer.search.loop_xla import search_in_stages
from tfformer.search.rules import LARGEST_NGRAM, ban_ngrams, likeliest, penalise_repetition


def beam_search(
    step,
    state,
    batch_size,
    max_length,
    beam_width=4,
    alpha=0.6,
    penalty_form="gnmt",
    num_results=None,
    prefix=None,
    skip=None,
    *,
    min_length=0,
    coverage=None,
    repetition_penalty=None,
    no_repeat_ngram=None,
    source_mask=None,
    keep=(),
    xla=False,
):
    """The best of W hypotheses that are extended side by side.

    A finished hypothesis keeps its place among the W and does not grow. A sentence is settled when
    its `num_results` best hypotheses are finished and no open one can still overtake them: an open
    log-probability can only fall, so log P / penalty(max_length) is the best it can come to.

    What is None costs nothing; a number may be a tensor.

    Args:
        step, state: see `tfformer.search`.
        batch_size: B, an integer or a scalar tensor.
        max_length: the longest sequence, eos counted; one for all or int32 [B].
        beam_width: W. Default 4.
        alpha: the exponent of the length penalty, not negative; 0 is none. Default 0.6.
        penalty_form: `"gnmt"` (default) or `"power"`.
        num_results: how many of the W are wanted, an integer; fewer end the search earlier.
            Default: all.
        prefix: int32 [B, P], P >= 1, padded with 0: tokens that a row must begin with.
            Default: none.
        skip: boolean [B], rows that are not searched: length 0, score 0. Default: none.
        min_length: the shortest sequence, eos counted. `max_length` and `prefix` count for more.
            Default 0.
        coverage: beta, not negative: beta * sum_s log(min(attention that source token s has had,
            1)) is added to a score (Wu et al. 2016, equation 14). The step function must give its
            attention, and `source_mask` is needed. Default None.
        repetition_penalty: at least 1; see `penalise_repetition`. Default None.
        no_repeat_ngram: n, in [0, 8]: no n tokens in a row come twice. 0 is no rule. Default None.
        source_mask: boolean [B, S], True = token; with `coverage`.
        keep: what to keep of each token: any of `"token_log_probs"` and `"alignment"`, for which
            the step function must give its attention. Default: neither.
        xla: whether XLA compiles the loop, in stages (`search_in_stages`) in place of rounds, for a
            step function that it can compile. Default False.

    Returns:
        A `SearchResult` of W = `num_results`.
    """
    check(max_length, beam_width=(beam_width, 1), alpha=(alpha, 0), min_length=(min_length, 0))
    width = beam_width
    wanted = width if num_results is None else num_results
    check(max_length, num_results=(wanted, 1))
    if not tf.is_tensor(width) and wanted > width:
        raise ValueError(f"num_results must be at most beam_width = {width}, got {wanted}")
    rules = {"coverage": (coverage, 0), "repetition_penalty": (repetition_penalty, 1)}
    rules["no_repeat_ngram"] = no_repeat_ngram, 0
    check(max_length, **{name: rule for name, rule in rules.items() if rule[0] is not None})
    if not tf.is_tensor(no_repeat_ngram) and (no_repeat_ngram or 0) > LARGEST_NGRAM:
        raise ValueError(f"no_repeat_ngram must be at most {LARGEST_NGRAM}, got {no_repeat_ngram}")
    if coverage is not None and source_mask is None:
        raise ValueError("source_mask is needed with coverage, got None")
    if not set(keep) <= {"token_log_probs", "alignment"}:
        raise ValueError(f"keep must be of 'token_log_probs' and 'alignment', got {keep!r}")
    # Among this many, W are allowed: pad and bos never are, eos not too early.
    no_early_eos = tf.is_tensor(min_length) or min_length > 1
    most = width + (3 if no_early_eos else 2)

    def covered(h):
        """The coverage penalty, [B, W]; 0 without one."""
        if coverage is None:
            return 0.0
        had = tf.math.log(tf.clip_by_value(h.coverage, 1e-6, 1.0))
        counts = h.given["source_mask"][:, None] & (~h.finished | (h.lengths > 0))[..., None]
        return coverage * tf.reduce_sum(tf.where(counts, had, 0.0), axis=-1)

    def settled(h):
        hope = tf.reduce_max(tf.where(h.finished, IMPOSSIBLE, h.log_probs), axis=1)
        hope /= h.given["final_penalty"]
        # The hypotheses are in order, so the first `wanted` are those to beat.
        closed = tf.reduce_all((h.finished | (h.log_probs == IMPOSSIBLE))[:, :wanted], axis=1)
        return closed & ((h.scores[:, wanted - 1] > hope) | (hope == IMPOSSIBLE))

    def advance(position, h, state):
        # 1. The model's opinion of every next token.
        logits, cache, attention = step(h.ids, position, h.visible(), state)
        logits = tf.cast(logits, tf.float32)
        # 2. The few likeliest of each hypothesis, and what they add to its log-probability.
        tokens, gains = candidates(logits, position, h)
        if coverage is not None:
            h = h._replace(coverage=h.coverage + tf.where(h.finished[..., None], 0.0, attention))
        # 3. Every continuation of every hypothesis, by score.
        totals = h.log_probs[:, :, None] + gains
        lengths = h.lengths + tf.cast(~h.finished, tf.int32)
        penalty = length_penalty(tf.maximum(lengths, 1), alpha, penalty_form)
        scores = totals / penalty[:, :, None]
        if coverage is not None:
            scores += covered(h)[:, :, None]
        # 4. The W best of all.
        count = tokens.shape[2] or tf.shape(tokens)[2]
        scores, places = tf.math.top_k(tf.reshape(scores, [-1, width * count]), k=width)
        parents = places // count

        def chosen(candidates):
            flat = tf.reshape(candidates, [-1, width * count])
            return tf.gather(flat, places, batch_dims=1)

        token = chosen(tokens)
        # 5. Each takes over what its parent was.
        values = {"token_ids": token}
        if "token_log_probs" in keep:
            values["token_log_probs"] = chosen(gains)
        if "alignment" in keep:
            place = tf.argmax(attention, axis=-1, output_type=tf.int32)
            values["alignment"] = tf.gather(place, parents, batch_dims=1)
        h = h._replace(lengths=lengths).descend(parents).write(position + 1, **values)
        h = h._replace(
            ids=token,
            log_probs=chosen(totals),
            scores=scores,
            finished=h.finished | (token == EOS),
        )
        return h, cache

    def candidates(logits, position, h):
        """Tokens and their log-probabilities, [B, W, n], among them the W likeliest allowed."""
        if repetition_penalty is not None:
            logits = penalise_repetition(logits, h.paths(), repetition_penalty)
        values, tokens = likeliest(logits, most)
        # log softmax of these alone; the first of them is the maximum that keeps exp in its range.
        top = values[..., :1]
        normaliser = top + tf.math.log(tf.reduce_sum(tf.exp(logits - top), -1, keepdims=True))
        if no_repeat_ngram is not None:
            banned = ban_ngrams(logits, h.paths(), position, no_repeat_ngram)
            values, tokens = likeliest(banned, most)
        gains = tf.where((tokens == PAD) | (tokens == BOS), IMPOSSIBLE, values - normaliser)
        if no_early_eos:
            gains = tf.where((tokens == EOS) & (position < min_length - 1), IMPOSSIBLE, gains)
        # Where only one token can follow, it is the first candidate and the others are none: eos
        # at the end, the prefix's at the beginning, and padding, which costs nothing, behind eos.
        last = (position >= h.given["limit"] - 1)[:, None]
        if prefix is None:
            only, single = EOS, h.finished | last
            cost = logits[..., EOS] - normaliser[..., 0]
        else:
            only = tf.where(last, EOS, forced_token(h.given["prefix"], position))
            only = tf.tile(only, [1, width])
            single = h.finished | (only != PAD)
            cost = tf.gather(logits, only, batch_dims=2) - normaliser[..., 0]
        only, cost = tf.where(h.finished, PAD, only), tf.where(h.finished, 0.0, cost)
        first = tf.range(tf.shape(tokens)[2]) == 0
        lone = tf.where(first, cost[..., None], IMPOSSIBLE)
        tokens = tf.where(single[..., None], only[..., None], tokens)
        return tokens, tf.where(single[..., None], lone, gains)

    limit = limits(max_length, batch_size)
    given = {"limit": limit, "final_penalty": length_penalty(limit, alpha, penalty_form)}
    if prefix is not None:
        given["prefix"] = tf.convert_to_tensor(prefix, tf.int32)
    if coverage is not None:
        given["source_mask"] = tf.convert_to_tensor(source_mask, tf.bool)
    # All W begin as the same bos; only the first counts, or the beam would be W copies of one.
    log_probs = tf.tile(tf.where(tf.range(width) == 0, 0.0, IMPOSSIBLE)[None], [batch_size, 1])
    start = Hypotheses.start(batch_size, width, log_probs, skip, given, keep)
    if coverage is not None:
        shape = [batch_size, width, tf.shape(source_mask)[1]]
        start = start._replace(coverage=tf.zeros(shape))
    search = search_in_stages if xla else search_in_rounds
    return result(search(advance, settled, start, state), wanted)


def forced_token(prefix, position):
    """The token that `prefix` [B, P] forces at a position, [B, 1]; pad where it forces none."""
    length = tf.shape(prefix)[1]
    inside = prefix[:, tf.minimum(position, length - 1), None]
    return tf.where(position < length, inside, PAD)
