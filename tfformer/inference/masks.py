"""The twins of the masks, and the biases that stand for them: what is added to a score.

`tfformer.layers.masks` makes the same masks on any backend, in a few operations more.
"""

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD

# Added to a score that may not be attended to. (Where nothing may be, this attends to all alike,
# and the layer gives zeros: no search asks for such a row.)
MASKED = -1e9


def padding_mask(ids):
    """True where `ids` is a token, False where it is padding (id 0); boolean, of their shape."""
    return ids != PAD


def without_eos(ids):
    """The ids with padding in place of each eos."""
    return tf.where(ids == EOS, PAD, ids)


def behind_bos(labels):
    """What a decoder reads to say the labels y + eos, [B, T]: bos + y. After the last token there
    is padding, not the eos that the shift has put there."""
    ids = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=BOS)
    return tf.where(labels == PAD, PAD, ids)


def attention_bias(mask):
    """0 where a boolean mask allows, and what hides a score where it does not; float32."""
    return tf.where(mask, 0.0, MASKED)


def padding_bias(ids):
    """Of an attention to ids [B, S]: float32 [B, 1, 1, S]."""
    return attention_bias(padding_mask(ids))[:, None, None]


def causal_bias(ids, length):
    """Of an attention of ids [B, T] to themselves, each to those up to its own: [B, 1, T, T]; T is
    `length`, a scalar tensor."""
    positions = tf.range(length)
    return attention_bias((positions[:, None] >= positions) & padding_mask(ids)[:, None, None])
