"""Decoding without a search: predicts all tokens of a target at once.

The tokens of a target do not depend on each other, so each position takes its most probable token.
What remains is to predict the least certain tokens again (`mask_predict`), or to convert positions
into a target (`collapsed`, `up_to_eos`).
"""

from typing import NamedTuple

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD, whole
from tfformer.search.rules import likeliest, may_be_found


class Written(NamedTuple):
    """Predicted tokens.

    token_ids: int32 [R, T], padded with 0 at the end; without eos.
    log_probs: float32 [R, T], of each token when it was predicted; 0 at padding.
    """

    token_ids: tf.Tensor
    log_probs: tf.Tensor

    @property
    def mean(self):
        """The mean log-probability of a row's tokens, float32 [R]; 0 if there are none."""
        count = tf.math.count_nonzero(self.token_ids, axis=1, dtype=tf.float32)
        return tf.math.divide_no_nan(tf.reduce_sum(self.log_probs, axis=1), count)


def mask_predict(predict, lengths, passes, longest):
    """Predict targets of known lengths in a few passes (Ghazvininejad et al. 2019, section 3.2).

    The first pass predicts all tokens. Each later pass, t = 1, 2, ... of T, predicts the
    n = floor(N (T - t) / T) least certain of the N tokens again, given all others.

    Args:
        predict: a function of int32 ids [R, T] that returns logits [R, T, V]. Bos (2) marks a token
            to predict, 0 is padding.
        lengths: int32 [R], N of each row, in [0, longest].
        passes: T, an integer of at least 1, or a scalar tensor.
        longest: scalar, the number of positions.

    Returns:
        A `Written`.

    Raises:
        ValueError: `passes` is not an integer of at least 1.
    """
    if not tf.is_tensor(passes):
        whole("passes", passes)
    real = tf.sequence_mask(lengths, longest)  # [R, T]
    share = 1.0 / tf.cast(passes, tf.float32)

    def again(n, ids, log_probs):
        # The exact count is an integer, but the computed one may be slightly smaller.
        count = tf.cast(lengths, tf.float32) * (1.0 - tf.cast(n, tf.float32) * share)
        count = tf.cast(tf.floor(count + 1e-4), tf.int32)
        sure = tf.where(real, log_probs, 1.0)
        rank = tf.argsort(tf.argsort(sure, axis=1, stable=True), axis=1)  # 0: the least certain
        hidden = real & (rank < count[:, None])
        new = said(predict(tf.where(hidden, BOS, ids)), is_text)
        ids = tf.where(hidden, new.token_ids, ids)
        return n + 1, ids, tf.where(hidden, new.log_probs, log_probs)

    empty = tf.where(real, BOS, PAD), tf.zeros_like(real, tf.float32)
    _, ids, log_probs = tf.while_loop(
        lambda n, *_: n < passes,
        again,
        (0, *empty),
        shape_invariants=(tf.TensorShape([]), *[tf.TensorShape([None, None])] * 2),
        parallel_iterations=1,
    )
    return Written(ids, log_probs)


def likeliest_lengths(logits, source_lengths, longest, count):
    """The most probable target lengths for each source.

    Args:
        logits: float32 [B, 2 n + 1], of the difference between target and source length, from -n to
            n tokens.
        source_lengths: int32 [B], without eos.
        longest: scalar, the maximum length of a target.
        count: the number of lengths for each source.

    Returns:
        int32 [B, count], the most probable first. If there are fewer, the last one is repeated.
    """
    size = logits.shape[1]
    lengths = source_lengths[:, None] + tf.range(size) - size // 2  # [B, 2 n + 1]
    known = (lengths >= 1) & (lengths <= longest)
    values, chosen = likeliest(tf.where(known, logits, tf.float32.min), min(count, size))
    lengths = tf.gather(lengths, chosen, batch_dims=1)
    # If the source allows none of the lengths, take the nearest possible one.
    lengths = tf.clip_by_value(lengths, 1, longest)
    lengths = tf.where(values > tf.float32.min, lengths, lengths[:, :1])
    missing = count - lengths.shape[1]
    return tf.concat([lengths, tf.tile(lengths[:, -1:], [1, missing])], axis=1)


def is_text(tokens):
    """Whether a token may be part of a text: no special token except unk."""
    return may_be_found(tokens) & (tokens != EOS)


def said(logits, allowed):
    """The most probable id of each position, among those for which `allowed` (ids -> bool) is True:
    a `Written`."""
    logits = tf.cast(logits, tf.float32)
    tokens = tf.range(tf.shape(logits)[-1])
    ids = tf.argmax(
        tf.where(allowed(tokens), logits, tf.float32.min), axis=-1, output_type=tf.int32
    )
    chosen = tf.gather(logits, ids, batch_dims=2)
    return Written(ids, chosen - tf.reduce_logsumexp(logits, axis=-1))


def collapsed(logits):
    """The target that the positions give by CTC (Graves et al. 2006), float32 [B, P, V] -> a
    `Written`. It takes the most probable ids, merges equal neighbours and removes blanks, id 0.

    The log-probability of a token sums those of its positions and of the blanks before it.
    """
    ids, log_probs = said(logits, lambda tokens: (tokens != BOS) & (tokens != EOS))
    before = tf.pad(ids[:, :-1], [[0, 0], [1, 0]])
    first = (ids != PAD) & (ids != before)
    return _kept(ids, log_probs, first, tf.zeros_like(first))


def up_to_eos(logits):
    """The target up to the first eos, or all positions if there is no eos:
    float32 [B, P, V] -> a `Written`."""
    ids, log_probs = said(logits, may_be_found)
    ended = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) > 0
    return _kept(ids, log_probs, ~ended, ended)


def _kept(ids, log_probs, kept, silent):
    """Move the kept positions together, as a `Written`. The log-probability of another position is
    added to the next kept one, or to the last; that of a silent position is dropped."""
    count = tf.reduce_sum(tf.cast(kept, tf.int32), axis=1)  # [B]
    longest = tf.maximum(tf.reduce_max(count), 1)
    number = tf.cumsum(tf.cast(kept, tf.int32), axis=1, exclusive=True)
    number = tf.minimum(number, tf.maximum(count, 1)[:, None] - 1)  # [B, P]
    rows = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, None], tf.shape(ids))
    places, shape = tf.stack([rows, number], axis=-1), tf.stack([tf.shape(ids)[0], longest])
    ids = tf.scatter_nd(places, tf.where(kept, ids, PAD), shape)
    log_probs = tf.scatter_nd(places, tf.where(silent, 0.0, log_probs), shape)
    return Written(ids, log_probs)
