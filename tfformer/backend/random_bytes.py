"""Which elements dropout keeps, by a random byte for each. TensorFlow alone has it."""

import tensorflow as tf


def kept(shape, dropped, seed):
    """True for 256 - `dropped` of 256 elements: a boolean tensor of this shape.

    Args:
        shape: a tensor.
        dropped: an int in [0, 256].
        seed: two integers; the same ones keep the same elements.
    """
    size = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform([(size + 3) // 4], seed, None, None, tf.int32)
    random = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]  # [N]
    return tf.reshape(random >= tf.constant(dropped, tf.uint8), shape)  # as `shape` = [...] says
