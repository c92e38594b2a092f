"""Dropout by a random byte for each element."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("tfformer")
class Dropout(keras.layers.Dropout):
    """Sets elements to zero with probability P_drop, in training (Srivastava et al. 2014).

    The others are divided by the probability of being kept, so that the mean stays.

    Keras draws a float for each element, which on a CPU takes longer than all else that it does
    here. With TensorFlow this takes a random byte, and P_drop in steps of 1/256: 0.1 is 26/256,
    and it is this that the others are scaled by. Elsewhere, and with a `noise_shape`, it is
    Keras's.

    Args:
        rate: P_drop, in [0, 1].
        **options: of `keras.layers.Dropout`.

    Call arguments:
        x: of any shape.
        training: False (default) gives `x`.

    Returns:
        As `x`.
    """

    def call(self, x, training=False):
        by_bytes = keras.backend.backend() == "tensorflow" and self.noise_shape is None
        if not (training and by_bytes and 0 < self.rate < 1):
            return super().call(x, training=training)
        from tfformer.backend.random_bytes import kept

        # At least one, where some are to fall, and at most 255, where some are to stay.
        dropped = min(max(round(256 * self.rate), 1), 255)
        seed = ops.cast(self.seed_generator.next(), "int32")
        mask = ops.cast(kept(ops.shape(x), dropped, seed), x.dtype)
        return x * (mask * ops.cast(256 / (256 - dropped), x.dtype))
