"""Predicts the length of a target from its source."""

import keras

from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.pooling import mean_of_tokens


@keras.saving.register_keras_serializable("tfformer")
class LengthPredictor(Layer):
    """logits = m W + b, where m is the mean of the encoder's output over the tokens.

    [B, S, D] -> [B, 2 n + 1]: logits of the difference between target and source length, from -n to
    n tokens. After Ghazvininejad et al. 2019, "Mask-Predict: Parallel Decoding of Conditional
    Masked Language Models", section 2.2. (They predict the length itself, from an added token.)

    Args:
        max_difference: n.

    Call arguments:
        memory: [B, S, D].
        mask: boolean [B, S], True = token. Default: all are tokens.

    Raises:
        ValueError: `max_difference` is not an integer of at least 1.

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
        """None: the output has no positions."""

    def compute_output_shape(self, memory_shape):
        return memory_shape[0], 2 * self.max_difference + 1

    def get_config(self):
        return {**super().get_config(), "max_difference": self.max_difference}
