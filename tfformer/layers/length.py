"""The length of a target, predicted from its source."""

import keras

from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.pooling import mean_of_tokens


@keras.saving.register_keras_serializable("tfformer")
class LengthPredictor(Layer):
    """logits = mean of the encoder's output over the tokens W + b: [B, S, D] -> [B, 2 n + 1], of
    targets that have n tokens less than their source, n - 1 less, ... n more  (after Ghazvininejad
    et al. 2019, "Mask-Predict: Parallel Decoding of Conditional Masked Language Models", section
    2.2; they predict the length itself, from a token of its own).

    Args:
        max_difference: n.

    Call arguments:
        memory: [B, S, D].
        mask: boolean [B, S], True = token. Default: all are.

    Raises:
        ValueError: `max_difference` is no integer of at least 1.

    Example:
        >>> tuple(LengthPredictor(max_difference=5)(keras.ops.ones((2, 3, 22))).shape)
        (2, 11)
    """

    def __init__(self, max_difference, **options):
        super().__init__(**options)
        check_whole(max_difference=max_difference)
        self.max_difference = max_difference
        self.supports_masking = True
        self.projection = keras.layers.Dense(
            2 * max_difference + 1, name="projection", dtype=self.dtype_policy
        )

    def build(self, memory_shape):
        self.projection.build((memory_shape[0], memory_shape[-1]))

    def call(self, memory, mask=None):
        return self.projection(mean_of_tokens(memory, mask))

    def compute_mask(self, memory, mask=None):
        """None: there are no places any more."""

    def compute_output_shape(self, memory_shape):
        return memory_shape[0], 2 * self.max_difference + 1

    def get_config(self):
        return {**super().get_config(), "max_difference": self.max_difference}
