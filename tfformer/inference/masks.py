"""Masks for inference, and biases, which are added to the scores instead of masking them.

`tfformer.layers.masks` makes the same masks on any backend, with a few more operations.
"""

import tensorflow as tf

from tfformer.config import BOS, EOS, PAD

# Added to a masked score. (A fully masked row then attends to all positions equally, whereas the
# layer returns zeros; no search uses such a row.)
MASKED = -1e9


def padding_mask(ids):
    """True where `ids` is a token, False where it is padding (id 0); boolean, of their shape."""
    return ids != PAD


def without_eos(ids):
    """The ids with padding in place of each eos."""
    return tf.where(ids == EOS, PAD, ids)


def behind_bos(labels):
    """The decoder input for the labels y + eos, [B, T]: bos + y. After the last token comes padding
    instead of the shifted eos."""
    ids = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=BOS)
    return tf.where(labels == PAD, PAD, ids)


def attention_bias(mask):
    """0 where a boolean mask is True, else a number that hides a score; float32."""
    return tf.where(mask, 0.0, MASKED)


def padding_bias(ids):
    """The bias of an attention to ids [B, S]: float32 [B, 1, 1, S]."""
    return attention_bias(padding_mask(ids))[:, None, None]


def causal_bias(ids, length):
    """The bias of causal self-attention over ids [B, T]: [B, 1, T, T]. T is `length`, a scalar
    tensor."""
    positions = tf.range(length)
    return attention_bias((positions[:, None] >= positions) & padding_mask(ids)[:, None, None])
