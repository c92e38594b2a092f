"""Decoding without a search: all tokens of a target at once.

There is nothing to search in, for the tokens of a target do not wait for each other; each place
says what is likeliest there. What remains is to write the least sure again (`mask_predict`), or to
read a target off the places (`collapsed`, `up_to_eos`).
"""

from typing import NamedTuple

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD, whole
from tfformer.search.rules import likeliest, may_be_found


class Written(NamedTuple):
    """What was written.

    token_ids: int32 [R, T], padding (id 0) behind; without eos.
    log_probs: float32 [R, T], of each token when it was written; 0 at padding.
    """

    token_ids: tf.Tensor
    log_probs: tf.Tensor

    @property
    def mean(self):
        """The mean log-probability of a row's tokens, float32 [R]; 0 of none."""
        count = tf.math.count_nonzero(self.token_ids, axis=1, dtype=tf.float32)
        return tf.math.divide_no_nan(tf.reduce_sum(self.log_probs, axis=1), count)


def mask_predict(predict, lengths, passes, longest):
    """Targets of known lengths, each written in a few passes (Ghazvininejad et al. 2019, section
    3.2).

    The first pass writes all tokens. Each later one, t = 1, 2, ... of T, writes the
    n = floor(N (T - t) / T) least sure of the N tokens again, beside all others.

    Args:
        predict: a function of int32 ids [R, T] that gives logits [R, T, V]; bos (2) stands where a
            token is to be written, 0 is padding.
        lengths: int32 [R], N of each row, in [0, longest].
        passes: T, an integer of at least 1, or a scalar tensor.
        longest: scalar, the number of places.

    Returns:
        A `Written`.

    Raises:
        ValueError: `passes` is no integer of at least 1.
    """
    if not tf.is_tensor(passes):
        whole("passes", passes)
    real = tf.sequence_mask(lengths, longest)  # [R, T]
    share = 1.0 / tf.cast(passes, tf.float32)

    def again(n, ids, log_probs):
        # Their number is whole; the quotient may be a little below it.
        count = tf.cast(lengths, tf.float32) * (1.0 - tf.cast(n, tf.float32) * share)
        count = tf.cast(tf.floor(count + 1e-4), tf.int32)
        sure = tf.where(real, log_probs, 1.0)
        rank = tf.argsort(tf.argsort(sure, axis=1, stable=True), axis=1)  # 0: the least sure
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
    """The likeliest lengths of targets beside their sources.

    Args:
        logits: float32 [B, 2 n + 1]: of n tokens less than the source, ... n more.
        source_lengths: int32 [B], eos not counted.
        longest: scalar: of a target.
        count: lengths for each source.

    Returns:
        int32 [B, count], the likeliest first; where there are fewer, the last of them again.
    """
    size = logits.shape[1]
    lengths = source_lengths[:, None] + tf.range(size) - size // 2  # [B, 2 n + 1]
    known = (lengths >= 1) & (lengths <= longest)
    values, chosen = likeliest(tf.where(known, logits, tf.float32.min), min(count, size))
    lengths = tf.gather(lengths, chosen, batch_dims=1)
    # A source of other lengths than there are: as near as may be.
    lengths = tf.clip_by_value(lengths, 1, longest)
    lengths = tf.where(values > tf.float32.min, lengths, lengths[:, :1])
    missing = count - lengths.shape[1]
    return tf.concat([lengths, tf.tile(lengths[:, -1:], [1, missing])], axis=1)


def is_text(tokens):
    """Whether a token is none of the special ones but unk."""
    return may_be_found(tokens) & (tokens != EOS)


def said(logits, allowed):
    """The likeliest id of each place, of those that `allowed` (ids -> bool) is true of: a
    `Written`."""
    logits = tf.cast(logits, tf.float32)
    tokens = tf.range(tf.shape(logits)[-1])
    ids = tf.argmax(
        tf.where(allowed(tokens), logits, tf.float32.min), axis=-1, output_type=tf.int32
    )
    chosen = tf.gather(logits, ids, batch_dims=2)
    return Written(ids, chosen - tf.reduce_logsumexp(logits, axis=-1))


def collapsed(logits):
    """What the places say by CTC (Graves et al. 2006): the likeliest id of each, of which side by
    side equal ones are one, and blanks, id 0, are left out. float32 [B, P, V] -> a `Written`.

    The log-probability of a token is that of the places which say it, and of the blanks before.
    """
    ids, log_probs = said(logits, lambda tokens: (tokens != BOS) & (tokens != EOS))
    before = tf.pad(ids[:, :-1], [[0, 0], [1, 0]])
    first = (ids != PAD) & (ids != before)
    return _kept(ids, log_probs, first, tf.zeros_like(first))


def up_to_eos(logits):
    """What the places say up to the first eos, and all of it where there is none:
    float32 [B, P, V] -> a `Written`."""
    ids, log_probs = said(logits, may_be_found)
    ended = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) > 0
    return _kept(ids, log_probs, ~ended, ended)


def _kept(ids, log_probs, kept, silent):
    """The places that are kept, side by side, as a `Written`; the log-probabilities of others are
    added to the one after, or to the last, and those of the silent are left out."""
    count = tf.reduce_sum(tf.cast(kept, tf.int32), axis=1)  # [B]
    longest = tf.maximum(tf.reduce_max(count), 1)
    number = tf.cumsum(tf.cast(kept, tf.int32), axis=1, exclusive=True)
    number = tf.minimum(number, tf.maximum(count, 1)[:, None] - 1)  # [B, P]
    rows = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, None], tf.shape(ids))
    places, shape = tf.stack([rows, number], axis=-1), tf.stack([tf.shape(ids)[0], longest])
    ids = tf.scatter_nd(places, tf.where(kept, ids, PAD), shape)
    log_probs = tf.scatter_nd(places, tf.where(silent, 0.0, log_probs), shape)
    return Written(ids, log_probs)
