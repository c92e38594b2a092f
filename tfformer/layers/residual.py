"""The residual connection, dropout and norm around a sub-layer."""

import keras

from tfformer.config import NORMS, number
from tfformer.layers.dropout import Dropout
from tfformer.layers.layer import Layer
from tfformer.layers.norm import norm_of, normed


@keras.saving.register_keras_serializable("tfformer")
class Residual(Layer):
    """`"post"`: LayerNorm(x + Dropout(Sublayer(x)))  (Vaswani et al. 2017, sections 3.1 and 5.4).
    `"pre"`: x + Dropout(Sublayer(LayerNorm(x)))  (Xiong et al. 2020).

    Args:
        dropout: P_drop. Default 0.1.
        norm: `"post"` (default) or `"pre"`.
        epsilon: the number that the norm adds to the variance. Default 1e-6.
        normalization: the kind of norm, see `tfformer.layers.norm`. Default `"layer"`.
        residual: whether to add x. Default True.

    Call arguments:
        x: [..., D].
        sublayer: a function [..., D] -> [..., D].
        rows: the layout of `x`, see `tfformer.layers.packing`. Default: all positions are tokens.

    Returns:
        [..., D].

    Raises:
        ValueError: an argument breaks its rule.
    """

    def __init__(
        self,
        dropout=0.1,
        norm="post",
        epsilon=1e-6,
        normalization="layer",
        residual=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        number("dropout", dropout, 0, 1)
        if norm not in NORMS:
            raise ValueError(f"norm must be one of {NORMS}, got {norm!r}")
        self.dropout, self.norm, self.epsilon = dropout, norm, epsilon
        self.normalization, self.residual = normalization, residual
        self.supports_masking = True
        common = {"dtype": self.dtype_policy, "name": "layer_norm"}
        self.layer_norm = norm_of(normalization, epsilon, **common)
        self.output_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape):
        self.layer_norm.build(x_shape)

    def call(self, x, sublayer, training=None, rows=None):
        inner = normed(self.layer_norm, x, rows, training) if self.norm == "pre" else x
        found = self.output_dropout(sublayer(inner), training=training)
        if self.residual:
            found = x + found
        return found if self.norm == "pre" else normed(self.layer_norm, found, rows, training)

    def get_config(self):
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "norm": self.norm,
            "epsilon": self.epsilon,
            "normalization": self.normalization,
            "residual": self.residual,
        }
