"""Search: from the probability of the next token to the most probable sequence.

Every search runs over a *step function* and a *state*, and knows no model:

    logits, state = step(ids, position, state)

    ids       int32 [B, W]: the newest token of each of W hypotheses a sentence
    position  int32 scalar: its place, 0 for bos
    logits    [B, W, V]: unnormalised, of the token behind it
    state     any nest of tensors [B, W, ..., T, K], which grow by one along their axis -2 at each
              step: the caches of keys and values. What a sentence has once (its memory) belongs
              into the step function's closure, where it is never copied for a hypothesis.

The sequences found are y_1 ... y_n = eos with 1 <= n <= max_length: at the last position nothing
but eos is allowed, so that every result is a complete sequence whose probability can be compared.
pad and bos are never chosen.

    score(y) = log P(y | x) / penalty(n)
    penalty(n) = ((5 + n) / 6)^alpha     (Wu et al. 2016, equation 14: "gnmt")
               = n^alpha                 ("power")
"""

from typing import NamedTuple

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD

PENALTY_FORMS = ("gnmt", "power")
IMPOSSIBLE = float("-inf")


class SearchResult(NamedTuple):
    """What a search found, best first. W is 1 for the searches that follow one hypothesis.

    token_ids: int32 [B, W, T], each ending with eos, padding behind it.
    scores: float32 [B, W], log_probs / penalty(lengths).
    log_probs: float32 [B, W].
    lengths: int32 [B, W], eos counted.

    A place that no sequence fills (a beam wider than there are sequences) has length 0 and score
    -inf.
    """

    token_ids: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


def length_penalty(length, alpha, form="gnmt"):
    """What a log-probability is divided by; float32, of the shape of `length`."""
    if form not in PENALTY_FORMS:
        raise ValueError(f"form must be one of {PENALTY_FORMS}, got {form!r}")
    length = tf.cast(length, tf.float32)
    return tf.pow((5.0 + length) / 6.0 if form == "gnmt" else length, alpha)


def allowed_log_probs(logits, position, max_length, prefix=None):
    """log softmax of [B, W, V] in float32, -inf where a token is not allowed at this position.

    Args:
        logits: [B, W, V].
        position: scalar, 0 for the first token.
        max_length: scalar; the token at max_length - 1 can only be eos.
        prefix: int32 [B, P], padded with 0: tokens that a row must begin with. Default: none.
    """
    log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    tokens = tf.range(tf.shape(logits)[-1])
    allowed = (tokens != PAD) & (tokens != BOS)
    allowed &= (tokens == EOS) | (position < max_length - 1)
    if prefix is None:
        return tf.where(allowed, log_probs, IMPOSSIBLE)
    # Behind the last column of `prefix` every row is free, as it is where its prefix is padding;
    # a prefix that leaves no place for eos is cut.
    end = tf.minimum(tf.shape(prefix)[1], max_length - 1)
    inside = tf.minimum(position, tf.shape(prefix)[1] - 1)
    forced = tf.where(position < end, prefix[:, inside], PAD)[:, None, None]
    allowed = tf.where(forced == PAD, allowed, tokens == forced)
    return tf.where(allowed, log_probs, IMPOSSIBLE)


def reorder(state, parents):
    """The state of hypothesis `parents[b, w]` in place w: leaves [B, W, ...], parents [B, W']."""
    return tf.nest.map_structure(lambda leaf: tf.gather(leaf, parents, batch_dims=1), state)


def _growing(state):
    """The shape invariants of a loop in which each leaf grows along its axis -2."""

    def shape(leaf):
        dims = leaf.shape.as_list()
        dims[-2] = None
        return tf.TensorShape(dims)

    return tf.nest.map_structure(shape, state)


def _check(max_length, **at_least):
    """Arguments that are Python numbers are checked here, tensors by whoever serves them."""
    for name, (value, least) in {"max_length": (max_length, 1), **at_least}.items():
        if not tf.is_tensor(value) and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def greedy_search(step, state, batch_size, max_length, skip=None):
    """The most probable token at each step.

    Args:
        step, state: see the module; the state is of W = 1.
        batch_size: B, an integer or a scalar tensor.
        max_length: the longest sequence, eos counted.
        skip: boolean [B], rows that are not searched: length 0, score 0. Default: none.

    Returns:
        A `SearchResult` with W = 1 and without a length penalty.
    """
    _check(max_length)

    def choose(log_probs, position):
        return tf.argmax(log_probs, axis=-1, output_type=tf.int32)

    return _follow(step, state, batch_size, max_length, choose, skip)


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
):
    """One sequence drawn from P(y | x)^(1 / temperature), cut to the likeliest tokens.

    At each step only the `top_k` likeliest tokens are kept (Fan et al. 2018), and of those the
    fewest that hold `top_p` of the probability (Holtzman et al. 2020). Stateless: the same seed
    draws the same sequence for the same row of a batch.

    Args:
        step, state, batch_size, max_length, skip: as in `greedy_search`.
        seed: an integer or int32 scalar.
        temperature: positive. Default 1.
        top_k: 0 keeps all. Default 0.
        top_p: in (0, 1]; 1 keeps all. Default 1.

    Returns:
        A `SearchResult` with W = 1; its log_probs are the model's own, untempered.
    """
    _check(max_length, top_k=(top_k, 0))
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if not tf.is_tensor(value) and not 0 < value <= (1 if name == "top_p" else value):
            raise ValueError(f"{name} must be positive, and top_p at most 1, got {value}")

    def choose(log_probs, position):
        kept = keep_likeliest(log_probs / temperature, top_k, top_p)
        # argmax(log p + Gumbel noise) is a draw from p (Gumbel 1954).
        uniform = tf.random.stateless_uniform(
            tf.shape(kept), seed=tf.stack([seed, position]), minval=1e-20, maxval=1.0
        )
        return tf.argmax(kept - tf.math.log(-tf.math.log(uniform)), -1, output_type=tf.int32)

    return _follow(step, state, batch_size, max_length, choose, skip)


def keep_likeliest(logits, top_k, top_p):
    """-inf for all but the `top_k` likeliest of [..., V], and of these for all but the fewest
    that hold `top_p` of the probability; the likeliest one always stays."""
    size = tf.shape(logits)[-1]
    ordered = tf.sort(logits, direction="DESCENDING")
    count = tf.where(tf.equal(top_k, 0), size, tf.minimum(top_k, size))
    ordered = tf.where(tf.range(size) < count, ordered, IMPOSSIBLE)
    probs = tf.nn.softmax(ordered)
    before = tf.cumsum(probs, axis=-1, exclusive=True)
    # A sum in float32 reaches 1 before the last of the tokens.
    inside = (before < top_p) | tf.equal(top_p, 1.0)
    kept = tf.where(inside & (ordered > IMPOSSIBLE), ordered, float("inf"))
    return tf.where(logits >= tf.reduce_min(kept, -1, keepdims=True), logits, IMPOSSIBLE)


def _follow(step, state, batch_size, max_length, choose, skip):
    """One hypothesis a sentence, by the token that `choose(log_probs [B, 1, V], t)` picks."""

    def running(position, tokens, log_probs, finished, state):
        return (position < max_length) & ~tf.reduce_all(finished)

    def advance(position, tokens, log_probs, finished, state):
        logits, state = step(tokens[:, :, -1], position, state)
        candidates = allowed_log_probs(logits, position, max_length)
        token = choose(candidates, position)
        gain = tf.gather(candidates, token, batch_dims=2)
        log_probs += tf.where(finished, 0.0, gain)
        token = tf.where(finished, PAD, token)
        tokens = tf.concat([tokens, token[:, :, None]], axis=-1)
        return position + 1, tokens, log_probs, finished | (token == EOS), state

    start = (
        tf.constant(0),
        tf.fill([batch_size, 1, 1], BOS),
        tf.zeros([batch_size, 1]),
        _skipped(skip, batch_size, 1),
        state,
    )
    shapes = (
        tf.TensorShape([]),
        tf.TensorShape([None, 1, None]),
        tf.TensorShape([None, 1]),
        tf.TensorShape([None, 1]),
        _growing(state),
    )
    _, tokens, log_probs, _, _ = tf.while_loop(running, advance, start, shapes)
    token_ids = tokens[:, :, 1:]
    lengths = tf.reduce_sum(tf.cast(token_ids != PAD, tf.int32), axis=-1)
    return SearchResult(token_ids, log_probs, log_probs, lengths)


def _skipped(skip, batch_size, width):
    """The hypotheses that are finished before the search begins, boolean [B, W]."""
    if skip is None:
        return tf.zeros([batch_size, width], tf.bool)
    return tf.tile(skip[:, None], [1, width])


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
):
    """The best of W hypotheses that are extended side by side.

    A finished hypothesis keeps its place among the W and does not grow. The search of a sentence
    ends when its `num_results` best hypotheses are finished and no open one can still overtake
    them: an open log-probability can only fall, so log P / penalty(max_length) is the best it can
    come to.

    Args:
        step, state: see the module; the state is of W = `beam_width`.
        batch_size: B, an integer or a scalar tensor.
        max_length: the longest sequence, eos counted.
        beam_width: W. Default 4.
        alpha: the exponent of the length penalty, not negative; 0 is none. Default 0.6.
        penalty_form: `"gnmt"` (default) or `"power"`.
        num_results: how many of the W are wanted, an integer; fewer end the search earlier.
            Default: all.
        prefix: int32 [B, P], P >= 1, padded with 0: tokens that a row must begin with.
            Default: none.
        skip: boolean [B], rows that are not searched: length 0, score 0. Default: none.

    Returns:
        A `SearchResult` of W = `num_results`.
    """
    _check(max_length, beam_width=(beam_width, 1), alpha=(alpha, 0))
    width = beam_width
    wanted = width if num_results is None else num_results
    _check(max_length, num_results=(wanted, 1))
    if not tf.is_tensor(width) and wanted > width:
        raise ValueError(f"num_results must be at most beam_width = {width}, got {wanted}")

    def penalty(length):
        return length_penalty(length, alpha, penalty_form)

    def running(position, tokens, log_probs, lengths, finished, state):
        best = penalty(max_length)
        hope = tf.reduce_max(tf.where(finished, IMPOSSIBLE, log_probs), axis=1) / best
        # The hypotheses are in order, so the first `wanted` are those to beat.
        scores = log_probs / penalty(tf.maximum(lengths, 1))
        closed = tf.reduce_all((finished | (log_probs == IMPOSSIBLE))[:, :wanted], axis=1)
        settled = closed & ((scores[:, wanted - 1] > hope) | (hope == IMPOSSIBLE))
        return (position < max_length) & ~tf.reduce_all(settled)

    def advance(position, tokens, log_probs, lengths, finished, state):
        # 1. The model's opinion of every next token.
        logits, state = step(tokens[:, :, -1], position, state)
        gains = allowed_log_probs(logits, position, max_length, prefix)
        size = tf.shape(gains)[-1]
        # 2. A finished hypothesis has one continuation: padding, which costs nothing.
        only_pad = tf.where(tf.range(size) == PAD, 0.0, IMPOSSIBLE)
        gains = tf.where(finished[:, :, None], only_pad, gains)
        # 3. Every continuation of every hypothesis, by score.
        totals = log_probs[:, :, None] + gains
        lengths += tf.cast(~finished, tf.int32)
        scores = totals / penalty(lengths)[:, :, None]
        # 4. The W best of the W x V.
        flat = tf.reshape(scores, [batch_size, width * size])
        _, places = tf.math.top_k(flat, k=width)
        parents, token = places // size, places % size
        # 5. Each takes over what its parent knew.
        log_probs = tf.gather(tf.reshape(totals, [batch_size, width * size]), places, batch_dims=1)
        tokens, lengths, finished = reorder((tokens, lengths, finished), parents)
        tokens = tf.concat([tokens, token[:, :, None]], axis=-1)
        return (
            position + 1,
            tokens,
            log_probs,
            lengths,
            finished | (token == EOS),
            reorder(state, parents),
        )

    # All W begin as the same bos; only the first counts, or the beam would be W copies of one.
    first = tf.where(tf.range(width) == 0, 0.0, IMPOSSIBLE)
    start = (
        tf.constant(0),
        tf.fill([batch_size, width, 1], BOS),
        tf.tile(first[None], [batch_size, 1]),
        tf.zeros([batch_size, width], tf.int32),
        _skipped(skip, batch_size, width),
        state,
    )
    beams = tf.TensorShape([None, None])
    shapes = (
        tf.TensorShape([]),
        tf.TensorShape([None, None, None]),
        beams,
        beams,
        beams,
        _growing(state),
    )
    _, tokens, log_probs, lengths, _, _ = tf.while_loop(running, advance, start, shapes)
    return _best_of(tokens[:, :, 1:], log_probs, lengths, penalty, wanted)


def _best_of(token_ids, log_probs, lengths, penalty, count):
    """The `count` best hypotheses, best first, as a `SearchResult`."""
    real = log_probs > IMPOSSIBLE
    lengths = tf.where(real, lengths, 0)
    token_ids = tf.where(real[:, :, None], token_ids, PAD)
    scores = tf.where(real, log_probs / penalty(tf.maximum(lengths, 1)), IMPOSSIBLE)
    scores, order = tf.math.top_k(scores, k=count)
    token_ids, log_probs, lengths = reorder((token_ids, log_probs, lengths), order)
    return SearchResult(token_ids, scores, log_probs, lengths)


def exhaustive_search(
    step, state, batch_size, max_length, alpha=0.6, penalty_form="gnmt", num_results=1
):
    """Every sequence there is, scored: what beam search approximates. For tiny vocabularies.

    Args:
        step, state: see the module; the state is of W = 1.
        batch_size: B.
        max_length: T, an integer; there are about (V - 3)^(T - 1) sequences, at most 1,000,000.
        alpha, penalty_form: as in `beam_search`.
        num_results: how many of the best to return. Default 1.

    Returns:
        A `SearchResult` of W = `num_results`.
    """
    _check(max_length, alpha=(alpha, 0), num_results=(num_results, 1))
    prefixes = tf.fill([batch_size, 1, 1], BOS)
    log_probs = tf.zeros([batch_size, 1])
    found_ids, found_log_probs, found_lengths = [], [], []
    for position in range(max_length):
        logits, state = step(prefixes[:, :, -1], tf.constant(position), state)
        gains = allowed_log_probs(logits, position, max_length)
        # Every open prefix can end here ...
        ended = tf.pad(prefixes[:, :, 1:], [[0, 0], [0, 0], [0, 1]], constant_values=EOS)
        padding = max_length - 1 - position
        found_ids.append(tf.pad(ended, [[0, 0], [0, 0], [0, padding]], constant_values=PAD))
        found_log_probs.append(log_probs + gains[:, :, EOS])
        found_lengths.append(tf.fill(tf.shape(log_probs), position + 1))
        if position == max_length - 1:
            break
        # ... or go on with every other token.
        others = [v for v in range(gains.shape[-1]) if v not in (PAD, BOS, EOS)]
        count = prefixes.shape[1]
        if count * len(others) > 1_000_000:
            raise ValueError(
                "max_length and the vocabulary must give at most 1,000,000 sequences, got "
                f"max_length={max_length} and {gains.shape[-1]} ids"
            )
        parents = tf.repeat(tf.range(count), len(others))[None]
        parents = tf.tile(parents, [batch_size, 1])
        token = tf.tile(tf.constant(others)[None], [batch_size, count])
        gained = tf.gather(gains, others, axis=-1)
        log_probs = tf.reshape(log_probs[:, :, None] + gained, [batch_size, -1])
        prefixes = tf.concat([reorder(prefixes, parents), token[:, :, None]], axis=-1)
        prefixes = tf.ensure_shape(prefixes, [None, count * len(others), None])
        state = reorder(state, parents)
    return _best_of(
        tf.concat(found_ids, axis=1),
        tf.concat(found_log_probs, axis=1),
        tf.concat(found_lengths, axis=1),
        lambda length: length_penalty(length, alpha, penalty_form),
        num_results,
    )
