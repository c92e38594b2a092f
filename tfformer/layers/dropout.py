"""Dropout that draws one random byte for each element."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("tfformer")
class Dropout(keras.layers.Dropout):
    """Sets elements to zero with probability P_drop, in training (Srivastava et al. 2014).

    The other elements are divided by the probability of being kept, so that the mean stays.

    Keras draws a float for each element. On a CPU that takes longer than all its other work here.
    With TensorFlow this layer draws a random byte, so P_drop has steps of 1/256: 0.1 becomes
    26/256, and the scale uses that rounded value. On other backends, and with a `noise_shape`,
    Keras's own dropout runs.

    Args:
        rate: P_drop, in [0, 1].
        **options: of `keras.layers.Dropout`.

    Call arguments:
        x: of any shape.
        training: False (default) returns `x`.

    Returns:
        As `x`.
    """

    def call(self, x, training=False):
        by_bytes = keras.backend.backend() == "tensorflow" and self.noise_shape is None
        if not (training and by_bytes and 0 < self.rate < 1):
            return super().call(x, training=training)
        from tfformer.backend.random_bytes import kept

        # At least 1, so that some elements are dropped; at most 255, so that some are kept.
        dropped = min(max(round(256 * self.rate), 1), 255)
        seed = ops.cast(self.seed_generator.next(), "int32")
        mask = ops.cast(kept(ops.shape(x), dropped, seed), x.dtype)
        return x * (mask * ops.cast(256 / (256 - dropped), x.dtype))
