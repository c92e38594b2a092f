"""Location-aware attention: scores that see where attention was (Chorowski et al. 2015,
"Attention-Based Models for Speech Recognition")."""

import keras
from keras import ops

from tfformer.layers.layer import Layer, check_whole


@keras.saving.register_keras_serializable("tfformer")
class Location(Layer):
    """Adds f_s = sum over n and g of U_n,h,g a_g,s+n to the score of head h and place s: a
    convolution over the places of the source of what all heads g of the layer below attend to.

    Chorowski et al. see the attention of the step before, which makes each step wait for the last.
    The layer below attends at the same step, so that all steps of a target are learned at once, and
    a search keeps nothing more. Below the first layer attention is even over the source.

    Args:
        num_heads: H.
        width: places of the convolution, odd.

    Call arguments:
        attention: [..., H, T, S], of the layer below.

    Returns:
        float32 [..., H, T, S].

    Raises:
        ValueError: a size is no integer of at least 1, or `width` is even.
    """

    def __init__(self, num_heads, width, **kwargs):
        super().__init__(autocast=False, **kwargs)
        check_whole(num_heads=num_heads, width=width)
        if width % 2 == 0:
            raise ValueError(f"width must be odd, got {width}")
        self.num_heads, self.width = num_heads, width

    def build(self, attention_shape=None):
        # Zeros: at first there is nothing that attention of its own does not say.
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
    """Attention that is even over a source, float32 of the shape of scores `like` [..., H, T, S];
    `memory_mask`, which broadcasts to it, is True where it may be."""
    real = ops.broadcast_to(ops.cast(memory_mask, "float32"), ops.shape(like))
    return real / ops.maximum(ops.sum(real, axis=-1, keepdims=True), 1.0)
