"""Keeps a value, such as a state or a position, for each hypothesis between two search steps.

A search handles only caches, which have one entry for each step, split among the beams. So the
value is stored at every position, although only the newest is needed. `visible` tells which beam
has the value of a hypothesis: the one that held its ancestor.
"""

import tensorflow as tf


def carried(cache, visible, position, first):
    """The stored value of each hypothesis, [B, W, X].

    Args:
        cache: [B, 1, C, W * X], from `kept`.
        visible, position: those of the step.
        first: the value before the first step; it broadcasts to [B, W, X].
    """
    batch, width = tf.shape(visible)[0], visible.shape[1] or tf.shape(visible)[1]
    before = tf.maximum(position - 1, 0)
    size = tf.shape(cache)[3] // width
    known = tf.reshape(cache[:, 0, before], [batch, width, size])  # [B, W, X]
    beams = tf.argmax(tf.cast(visible[:, :, before], tf.int32), axis=2)  # [B, W]
    return tf.where(position == 0, first, tf.gather(known, beams, batch_dims=1))


def kept(cache, new, position):
    """Write `new` [B, W, X] to a cache [B, 1, C, W * X] at a position."""
    here = (tf.range(tf.shape(cache)[2]) == position)[None, None, :, None]
    row = tf.reshape(new, [tf.shape(cache)[0], 1, 1, tf.shape(cache)[3]])  # [B, 1, 1, W * X]
    return tf.where(here, row, cache)
