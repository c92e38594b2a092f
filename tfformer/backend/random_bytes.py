"""Dropout masks from one random byte for each element. Only for TensorFlow."""

import tensorflow as tf


def kept(shape, dropped, seed):
    """A boolean tensor of this shape, True with probability 1 - `dropped` / 256.

    Args:
        shape: a tensor.
        dropped: an int in [0, 256].
        seed: two integers, which determine the mask.
    """
    size = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform([(size + 3) // 4], seed, None, None, tf.int32)
    random = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]  # [N]
    return tf.reshape(random >= tf.constant(dropped, tf.uint8), shape)  # as `shape` = [...] says
