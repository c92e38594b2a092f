"""The position-wise feed-forward layer of section 3.3, and its gated variant."""

from typing import Any

import keras

from tfformer.annotations import Shape, Tensor
from tfformer.config import ACTIVATIONS, number
from tfformer.layers.dropout import Dropout
from tfformer.layers.layer import Layer, check_whole, check_width
from tfformer.layers.weight_matrices import Matrix

# The activation of each gated form.
GATED = {"swiglu": "silu", "geglu": "gelu_tanh"}


def gelu_tanh(x):
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))  (Hendrycks and Gimpel 2016)."""
    return keras.activations.gelu(x, approximate=True)


@keras.saving.register_keras_serializable("tfformer")
class FeedForward(Layer):
    """FFN(x) = act(x W_1 + b_1) W_2 + b_2  (Vaswani et al. 2017, equation 2, with act = relu).

    With `"swiglu"`, FFN(x) = (silu(x W_1 + b_1) * (x W_3 + b_3)) W_2 + b_2  (Shazeer 2020,
    equation 6, with biases): 1.5 times as many parameters for the same `d_ff`. `"geglu"` has
    `gelu_tanh` for silu.

    Args:
        d_model: D.
        d_ff: the inner width.
        activation: `"relu"` (default), `"gelu"`, `"gelu_tanh"`, `"silu"`, `"swiglu"` or `"geglu"`.
        dropout: on the output of the activation, in training. Default 0.
        use_bias: whether b_1, b_2 and the gate's b_3 are added. Default True.

    Call arguments:
        x: [..., D].

    Returns:
        [..., D].

    Raises:
        ValueError: a size is not an integer of at least 1, `dropout` is not in [0, 1), the
            activation is unknown, or the width of `x` is not `d_model`.
        TypeError: an argument is unknown.

    Example, whose 306 weights are (7 * 13 + 13) * 2 + 13 * 7 + 7:
        >>> feed_forward = FeedForward(d_model=7, d_ff=13, activation="swiglu")
        >>> tuple(feed_forward(keras.ops.ones((3, 5, 7))).shape)
        (3, 5, 7)
        >>> feed_forward.count_params()
        306
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_whole(d_model=d_model, d_ff=d_ff)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
        self.d_model, self.d_ff, self.activation = d_model, d_ff, activation
        number("dropout", dropout, 0, 1)
        self.dropout, self.use_bias = dropout, use_bias
        self.gated = activation in GATED
        self.supports_masking = True
        inner = GATED.get(activation, activation)
        act = gelu_tanh if inner == "gelu_tanh" else inner
        common = {"use_bias": use_bias, "dtype": self.dtype_policy}
        self.inner = keras.layers.Dense(d_ff, act, name="inner", **common)
        if self.gated:
            self.gate = keras.layers.Dense(d_ff, name="gate", **common)
        self.outer = keras.layers.Dense(d_model, name="outer", **common)
        # Only with dropout: its seed is a weight, which models saved earlier do not have.
        self.inner_dropout = Dropout(dropout, dtype=self.dtype_policy) if dropout else None

    def build(self, x_shape: Shape) -> None:
        check_width(x_shape, self.d_model)
        self.inner.build(x_shape)
        if self.gated:
            self.gate.build(x_shape)
        self.outer.build((*x_shape[:-1], self.d_ff))

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        hidden = self.inner(x)
        if self.gated:
            hidden = hidden * self.gate(x)
        if self.inner_dropout is not None:
            hidden = self.inner_dropout(hidden, training=training)
        return self.outer(hidden)

    def matrices(self) -> list[Matrix]:
        """W_1, W_2 and, if gated, W_3, as `Matrix`."""
        layers = [self.inner, self.outer, *([self.gate] if self.gated else [])]
        return [Matrix.of(layer) for layer in layers]

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "activation": self.activation,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
        }
