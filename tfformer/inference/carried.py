"""What a hypothesis carries from one step of a search to the next: a state, or a place.

A search knows caches alone, in which each step has a place and each beam a part of it. So what is
carried is kept at every position, though the newest is enough, and `visible` tells whose it is:
that of a hypothesis stands in the beam in which its ancestor stood.
"""

import tensorflow as tf


def carried(cache, visible, position, first):
    """What each hypothesis has carried here, [B, W, X].

    Args:
        cache: [B, 1, C, W * X], as `kept` gives it.
        visible, position: of the step.
        first: what broadcasts to [B, W, X], before the first step.
    """
    batch, width = tf.shape(visible)[0], visible.shape[1] or tf.shape(visible)[1]
    before = tf.maximum(position - 1, 0)
    size = tf.shape(cache)[3] // width
    known = tf.reshape(cache[:, 0, before], [batch, width, size])  # [B, W, X]
    beams = tf.argmax(tf.cast(visible[:, :, before], tf.int32), axis=2)  # [B, W]
    return tf.where(position == 0, first, tf.gather(known, beams, batch_dims=1))


def kept(cache, new, position):
    """A cache [B, 1, C, W * X] with `new` [B, W, X] at the position."""
    here = (tf.range(tf.shape(cache)[2]) == position)[None, None, :, None]
    row = tf.reshape(new, [tf.shape(cache)[0], 1, 1, tf.shape(cache)[3]])  # [B, 1, 1, W * X]
    return tf.where(here, row, cache)
