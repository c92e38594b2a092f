"""Upsampling: several target positions for each source position."""

import keras
from keras import ops

from tfformer.layers.layer import Layer, check_whole, check_width


@keras.saving.register_keras_serializable("tfformer")
class Upsampling(Layer):
    """y_(k s + j) = x_s W_j + b_j for j = 0 ... k - 1: [B, S, D] -> [B, k S, D]  (Libovický and
    Helcl 2018, "End-to-End Non-Autoregressive Neural Machine Translation with Connectionist
    Temporal Classification", section 3, which splits the states of the encoder).

    Args:
        d_model: D.
        factor: k.

    Raises:
        ValueError: `d_model` or `factor` is not an integer of at least 1; or the width of `x` is
            not `d_model`.

    Example:
        >>> tuple(Upsampling(d_model=22, factor=3)(keras.ops.ones((2, 5, 22))).shape)
        (2, 15, 22)
    """

    def __init__(self, d_model, factor, **options):
        super().__init__(**options)
        check_whole(d_model=d_model, factor=factor)
        self.d_model, self.factor = d_model, factor
        self.supports_masking = True
        self.projection = keras.layers.Dense(
            factor * d_model, name="projection", dtype=self.dtype_policy
        )

    def build(self, x_shape):
        check_width(x_shape, self.d_model)
        self.projection.build(x_shape)

    def call(self, x):
        batch, length = ops.shape(x)[:2]
        x = self.projection(x)  # [B, S, k D]
        return ops.reshape(x, (batch, length * self.factor, self.d_model))  # [B, k S, D]

    def compute_mask(self, x, mask=None):
        return None if mask is None else ops.repeat(mask, self.factor, axis=1)

    def compute_output_shape(self, x_shape):
        batch, length, width = x_shape
        return batch, None if length is None else length * self.factor, width

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model, "factor": self.factor}
