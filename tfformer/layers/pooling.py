"""Pooling: one vector for a whole text."""

import keras
from keras import ops

from tfformer.config import POOLINGS
from tfformer.layers.layer import Layer


@keras.saving.register_keras_serializable("tfformer")
class Pooling(Layer):
    """The vector of a text. It is the mean over the tokens (Reimers and Gurevych 2019), or the
    vector of a bos inserted before the text (Devlin et al. 2019). No weights.

    Args:
        kind: `"mean"` (default) or `"bos"`.

    Call arguments:
        x: [B, S, D].
        mask: boolean [B, S], True = token.

    Returns:
        [B, D]. For a text without tokens: zeros with `"mean"`, the first position with `"bos"`.

    Raises:
        ValueError: `kind` is unknown.
    """

    def __init__(self, kind="mean", **kwargs):
        super().__init__(**kwargs)
        if kind not in POOLINGS:
            raise ValueError(f"kind must be one of {POOLINGS}, got {kind!r}")
        self.kind = kind
        self.supports_masking = True

    def call(self, x, mask):
        if self.kind == "bos":
            return x[:, 0]
        return mean_of_tokens(x, mask)

    def compute_mask(self, x, mask=None):
        """None: a vector has no positions."""

    def compute_output_shape(self, x_shape, mask_shape=None):
        return (x_shape[0], x_shape[-1])

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}


def mean_of_tokens(x, mask=None):
    """The mean of x [B, S, D] over the positions where the mask [B, S] is True: [B, D]. A fully
    masked row returns zeros."""
    if mask is None:
        return ops.mean(x, axis=1)
        # float32, because a sum of many half precision numbers loses digits.
    weights = ops.cast(mask, "float32")[:, :, None]
    total = ops.sum(ops.cast(x, "float32") * weights, axis=1)
    return ops.cast(total / ops.maximum(ops.sum(weights, axis=1), 1.0), x.dtype)
