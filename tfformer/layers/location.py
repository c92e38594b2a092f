"""Location-aware attention: scores that depend on earlier attention weights (Chorowski et al. 2015,
"Attention-Based Models for Speech Recognition")."""

import keras
from keras import ops

from tfformer.layers.layer import Layer, check_whole


@keras.saving.register_keras_serializable("tfformer")
class Location(Layer):
    """Adds f_s = sum over n and g of U_n,h,g a_g,s+n to the score of head h and position s.

    This is a convolution over source positions. Its input is the attention weights of all heads g
    of the layer below.

    Chorowski et al. use the attention weights of the previous step, so each step waits for the one
    before. Here the weights come from the layer below at the same step. So training computes all
    steps of a target at once, and search needs no extra cache. Below the first layer, attention is
    uniform over the source.

    Args:
        num_heads: H.
        width: the number of positions in the convolution, odd.

    Call arguments:
        attention: [..., H, T, S], the weights of the layer below.

    Returns:
        float32 [..., H, T, S].

    Raises:
        ValueError: a size is not an integer of at least 1, or `width` is even.
    """

    def __init__(self, num_heads, width, **kwargs):
        super().__init__(autocast=False, **kwargs)
        check_whole(num_heads=num_heads, width=width)
        if width % 2 == 0:
            raise ValueError(f"width must be odd, got {width}")
        self.num_heads, self.width = num_heads, width

    def build(self, attention_shape=None):
        # Zeros: training starts from the scores of plain attention.
        self.kernel = self.add_weight(
            name="kernel", shape=(self.width, self.num_heads, self.num_heads), initializer="zeros"
        )

    def call(self, attention):
        shape = ops.shape(attention)
        rows = ops.moveaxis(ops.cast(attention, "float32"), -3, -1)  # [..., T, S, H]
        rows = ops.reshape(rows, (-1, shape[-1], self.num_heads))  # [... * T, S, H]
        found = ops.conv(rows, ops.cast(self.kernel, "float32"), padding="same")
        found = ops.reshape(found, (*shape[:-3], *shape[-2:], self.num_heads))  # [..., T, S, H]
        return ops.moveaxis(found, -1, -3)

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads, "width": self.width}


def even(memory_mask, like):
    """Uniform attention over a source, float32, in the shape of the scores `like` [..., H, T, S].
    `memory_mask` broadcasts to it and is True where attention is allowed."""
    real = ops.broadcast_to(ops.cast(memory_mask, "float32"), ops.shape(like))
    return real / ops.maximum(ops.sum(real, axis=-1, keepdims=True), 1.0)
