"""Dropout by a random byte for each element."""

import keras


@keras.saving.register_keras_serializable("tfformer")
class Dropout(keras.layers.Dropout):
    """Sets elements to zero with probability P_drop, in training (Srivastava et al. 2014).

    The others are divided by the probability of being kept, so that the mean stays.

    Keras draws a float for each element, which on a CPU takes longer than all else that it does
    here. With TensorFlow this takes a random byte, and P_drop in steps of 1/256: 0.1 is 26/256,
    and it is this that the others are scaled by. Elsewhere it is Keras's.

    Args:
        rate: P_drop, in [0, 1).
        seed: an int, or None (default).

    Call arguments:
        x: of any shape.
        training: False or None (default) gives `x`.

    Returns:
        As `x`.
    """

    def call(self, x, training=False):
        if not training or not self.rate or keras.backend.backend() != "tensorflow":
            return super().call(x, training=training)
        import tensorflow as tf

        # At 1 all would be 0, and at 0 there would be no dropout where some was asked for.
        dropped = min(max(round(256 * self.rate), 1), 255)
        size = tf.size(x)
        seed = tf.cast(self.seed_generator.next(), "int32")
        words = tf.random.stateless_uniform([(size + 3) // 4], seed, None, None, "int32")
        random = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]
        kept = tf.cast(random >= tf.constant(dropped, tf.uint8), x.dtype)
        return x * tf.reshape(kept * tf.cast(256 / (256 - dropped), x.dtype), tf.shape(x))
