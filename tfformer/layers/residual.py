"""Residual connection, dropout and LayerNorm around a sub-layer, written once."""

import keras

from tfformer.config import NORMS, number
from tfformer.layers.dropout import Dropout
from tfformer.layers.layer import Layer
from tfformer.layers.norm import LayerNorm


@keras.saving.register_keras_serializable("tfformer")
class Residual(Layer):
    """`"post"`: LayerNorm(x + Dropout(Sublayer(x)))  (Vaswani et al. 2017, sections 3.1 and 5.4).
    `"pre"`: x + Dropout(Sublayer(LayerNorm(x)))  (Xiong et al. 2020).

    Args:
        dropout: P_drop. Default 0.1.
        norm: `"post"` (default) or `"pre"`.
        epsilon: what LayerNorm adds to the variance. Default 1e-6.

    Call arguments:
        x: [..., D].
        sublayer: a function of [..., D] that gives [..., D].

    Returns:
        [..., D].
    """

    def __init__(self, dropout=0.1, norm="post", epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        number("dropout", dropout, 0, 1)
        if norm not in NORMS:
            raise ValueError(f"norm must be one of {NORMS}, got {norm!r}")
        self.dropout, self.norm, self.epsilon = dropout, norm, epsilon
        self.supports_masking = True
        self.layer_norm = LayerNorm(epsilon, dtype=self.dtype_policy, name="layer_norm")
        self.output_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape):
        self.layer_norm.build(x_shape)

    def call(self, x, sublayer, training=None):
        if self.norm == "pre":
            return x + self.output_dropout(sublayer(self.layer_norm(x)), training=training)
        return self.layer_norm(x + self.output_dropout(sublayer(x), training=training))

    def get_config(self):
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "norm": self.norm,
            "epsilon": self.epsilon,
        }
