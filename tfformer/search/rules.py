"""The rules of every search: which tokens may follow, and how their scores change."""

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD
from tfformer.config.search_options import LARGEST_NGRAM
from tfformer.search.hypotheses import IMPOSSIBLE

# The columns in a block, and the minimum vocabulary for which comparing the maxima of blocks first
# is faster.
BLOCK, LARGE = 32, 2048


def may_be_found(tokens):
    """False for pad and bos, which no search chooses; boolean, in the shape of `tokens`."""
    return (tokens != PAD) & (tokens != BOS)


def is_end(tokens, ends=()):
    """True for eos and the ids in `ends`, which end a sequence; boolean, in the shape of
    `tokens`."""
    found = tokens == EOS
    for number in ends:
        found |= tokens == number
    return found


def allowed_log_probs(logits, position, max_length, min_length=0, force_eos=True, ends=()):
    """log softmax of [B, W, V] in float32, -inf where a token is not allowed at this position.

    Args:
        logits: [B, W, V].
        position: scalar, 0 for the first token.
        max_length: scalar or [B]. With `force_eos`, the token at max_length - 1 must be eos.
        min_length: scalar. Before min_length - 1, eos is not allowed, nor one of `ends`. Default 0.
        ends: ids that end a sequence, besides eos.
    """
    log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    tokens = tf.range(tf.shape(logits)[-1])
    early = is_end(tokens, ends) & (position < min_length - 1)
    allowed = may_be_found(tokens) & ~early
    if force_eos:
        last = tf.reshape(position >= max_length - 1, [-1, 1, 1])  # [B or 1, 1, 1]
        allowed = tf.where(last, tokens == EOS, allowed)
    return tf.where(allowed, log_probs, IMPOSSIBLE)


def likeliest(logits, count):
    """The largest of [..., V], float32, in order: values and indices, [..., min(count, V)].

    With a large V, this function first takes the `count` blocks with the largest maxima, which
    contain all results. `top_k` reads its numbers one by one. The maximum of each block is
    vectorised, so this is several times as fast. (Equal numbers may come in another order.)
    """
    size = logits.shape[-1]
    known = size is not None and not tf.is_tensor(count)
    count = min(count, size) if known else tf.minimum(count, tf.shape(logits)[-1])
    if size is not None and size < LARGE:
        return tf.math.top_k(logits, count)
    open_size = size is None
    size = tf.shape(logits)[-1] if open_size else size
    num_blocks = size // BLOCK
    taken = tf.minimum(count, num_blocks)
    # Block j has the columns j, j + num_blocks, ...; the rest of V is always compared.
    lead = tf.shape(logits)[:-1]
    rows = tf.reshape(logits, [-1, size])  # [R, V]
    num_rows = tf.shape(rows)[0] if open_size else -1  # an empty tensor cannot infer -1
    inside = tf.reshape(rows[:, : BLOCK * num_blocks], [num_rows, BLOCK, num_blocks])  # [R, 32, N]
    _, blocks = tf.math.top_k(tf.reduce_max(inside, axis=1), taken)
    first, columns = BLOCK * num_blocks, tf.range(BLOCK) * num_blocks + blocks[:, :, None]
    columns = tf.reshape(columns, [num_rows, BLOCK * taken])  # [R, 32 n]
    if open_size or first < size:
        rest = tf.range(first, size) if open_size else tf.constant([*range(first, size)])
        others = tf.tile(rest[None], [tf.shape(rows)[0], 1])
        columns = tf.concat([columns, others], axis=1)
    values, best = tf.math.top_k(tf.gather(rows, columns, batch_dims=1), count)
    tokens = tf.gather(columns, best, batch_dims=1)
    shape = tf.concat([lead, [count]], axis=0)
    return tf.reshape(values, shape), tf.reshape(tokens, shape)  # [..., count]


def forced_token(prefix, position):
    """The token that `prefix` [B, P] forces at a position, [B, 1]; pad if it forces none."""
    length = tf.shape(prefix)[1]
    inside = prefix[:, tf.minimum(position, length - 1), None]
    return tf.where(position < length, inside, PAD)


def coverage_scores(attended, source_mask, beta):
    """beta * sum_s log(min(total attention on source token s, 1)), float32 [B, W]
    (Wu et al. 2016, equation 14).

    Args:
        attended: float32 [B, W, S], the total attention.
        source_mask: boolean that broadcasts to it, True = token.
        beta: scalar.
    """
    had = tf.math.log(tf.clip_by_value(attended, 1e-6, 1.0))
    return beta * tf.reduce_sum(tf.where(source_mask, had, 0.0), axis=-1)


def penalise_repetition(logits, paths, penalty):
    """Makes tokens that a hypothesis already has less probable (Keskar et al. 2019, section 4.1).

    Positive logits are divided by `penalty`, negative ones are multiplied by it.

    Args:
        logits: float32 [B, W, V].
        paths: int32 [B, W, C], bos first, 0 if empty.
        penalty: scalar, at least 1.
    """
    seen = tf.gather(logits, paths, batch_dims=2)
    less = tf.where(seen > 0, seen / penalty, seen * penalty)
    # pad and bos are in every path. They are never chosen, but must stay in the softmax.
    less = tf.where(may_be_found(paths), less, seen)
    return _scatter(tf.tensor_scatter_nd_update, logits, paths, less)


def ban_ngrams(logits, paths, position, size):
    """-inf for every token that would complete an n-gram which the hypothesis already has.

    (Paulus et al. 2017, section 2.5)

    Args:
        logits: float32 [B, W, V].
        paths: int32 [B, W, C], bos first, the newest token at `position`.
        position: scalar.
        size: n, scalar, at most `LARGEST_NGRAM`; 0 bans nothing.
    """
    length = tf.shape(paths)[2]
    # positions[c] ends an n-gram; it repeats if the n - 1 tokens before c are the newest ones.
    positions = tf.range(length)
    same = (positions <= position) & (positions >= size) & (size > 0)
    same = tf.broadcast_to(same, tf.shape(paths))
    for back in range(1, LARGEST_NGRAM):
        at = tf.maximum(position + 1 - back, 0)
        before = tf.pad(paths, [[0, 0], [0, 0], [back, 0]])[:, :, :length]
        same &= (before == paths[:, :, at, None]) | (back >= size)
    same &= paths != PAD
    banned = tf.where(same, IMPOSSIBLE, tf.gather(logits, paths, batch_dims=2))
    # If a token is both banned and allowed, the ban wins.
    return _scatter(tf.tensor_scatter_nd_min, logits, paths, banned)


def _scatter(scatter, logits, ids, values):
    """Write `values` [B, W, C] into the logits [B, W, V] at `ids` [B, W, C], by `scatter`."""
    flat = tf.reshape(logits, [-1, tf.shape(logits)[-1]])  # [B * W, V]
    rows = tf.repeat(tf.range(tf.shape(flat)[0]), tf.shape(ids)[2])
    where = tf.stack([rows, tf.reshape(ids, [-1])], axis=1)  # [B * W * C, 2]
    found = scatter(flat, where, tf.reshape(values, [-1]))  # [B * W, V]
    return tf.reshape(found, tf.shape(logits))  # [B, W, V]
