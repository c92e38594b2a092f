"""Positions that are added to embeddings: sinusoids (section 3.5 of the paper), or a learned vector
for each. Positions inside attention are in `tfformer.layers.relative_positions`."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tfformer.annotations import Shape, Tensor
from tfformer.layers.layer import Layer, check_whole, check_width


def check_rank(x, positions):
    """Raises a ValueError if x is neither [B, T, D] nor [N, D] with positions. [B, T, D] may have
    more axes before T."""
    if len(x.shape) < 3 if positions is None else len(x.shape) != 2:
        raise ValueError(
            f"x must be [B, T, D], or [N, D] with positions, got shape {tuple(x.shape)}"
        )


def sinusoids(positions, d_model, frequencies=None):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same angle).

    PE(pos + k) is a linear function of PE(pos): each pair (sin, cos) is rotated by k / 10000^...
    (Vaswani et al. 2017, section 3.5). Angles are float32 whatever the compute dtype, because
    bfloat16 cannot represent all integers above 256.

    Args:
        positions: [T], integers.
        d_model: D, even.
        frequencies: of other angles, [D / 2]. Default: those of the equation.

    Returns:
        float32 [T, D].
    """
    if frequencies is None:
        frequencies = frequencies_of(d_model)
    angles = ops.cast(positions, "float32")[:, None] * frequencies.astype("float32")
    interleaved = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(interleaved, (-1, d_model))  # [T, D]


def frequencies_of(d_model, base=10000.0):
    """base^(-2i/d_model) for each pair of features: NumPy float64 [D / 2]."""
    return base ** (-np.arange(0, d_model, 2, dtype="float64") / d_model)


class WithoutWeights(Layer):
    """Base class of positions without weights: [B, T, D] or [N, D] in, the same out."""

    def __init__(self, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_whole(d_model=d_model)
        self.d_model = d_model
        self.supports_masking = True

    def build(self, x_shape: Shape | None = None) -> None:
        check_width(x_shape, self.d_model)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "d_model": self.d_model}


@keras.saving.register_keras_serializable("tfformer")
class SinusoidalPositionalEncoding(WithoutWeights):
    """x + PE, for sequences of any length; see `sinusoids` for the equation. No weights.

    Args:
        d_model: D, even.

    Call arguments:
        x: [B, T, D]; there may be more axes before T.
        start: the position of x[..., 0, :], an integer or a scalar tensor. Default 0.
        positions: integers [N], for an `x` of [N, D]. Default: the positions from `start` on.

    Returns:
        [B, T, D], or [N, D].

    Raises:
        ValueError: `d_model` is not an even integer of at least 1; or the width or the axes of `x`
            are wrong.
        TypeError: an argument is unknown.

    Example, (sin, cos) at positions 0, 1 and 2:
        >>> positions = SinusoidalPositionalEncoding(d_model=2)
        >>> print(np.array(positions(keras.ops.zeros((1, 3, 2)))[0], "float64").round(2))
        [[ 0. 1. ]
         [ 0.84 0.54]
         [ 0.91 -0.42]]
    """

    def __init__(self, d_model: int, **kwargs: Any) -> None:
        super().__init__(d_model, **kwargs)
        if d_model % 2:
            raise ValueError(f"d_model must be even, got {d_model}")

    def call(self, x: Tensor, start: int | Tensor = 0, positions: Tensor | None = None) -> Tensor:
        check_width(x.shape, self.d_model)
        check_rank(x, positions)
        if positions is None:
            positions = ops.arange(ops.shape(x)[-2]) + start
        return x + ops.cast(sinusoids(positions, self.d_model), x.dtype)


@keras.saving.register_keras_serializable("tfformer")
class LearnedPositionalEmbedding(Layer):
    """x + P[pos], one learned vector for each position (Gehring et al. 2017; section 3.5's row E).

    Args:
        max_positions: the number of positions. A call refuses a longer sequence if its length is
            known. If the length is known only inside a graph, all later positions use the last
            vector.
        d_model: D.

    Call arguments:
        x: [B, T, D]; there may be more axes before T.
        start: the position of x[..., 0, :], an integer or a scalar tensor. Default 0.
        positions: integers [N], for an `x` of [N, D]. Default: the positions from `start` on.

    Returns:
        [B, T, D], or [N, D].

    Raises:
        ValueError: a size is not an integer of at least 1; or the width or the axes of `x` are
            wrong, or `x` is known to be too long.
        TypeError: an argument is unknown.

    Example:
        >>> positions = LearnedPositionalEmbedding(max_positions=11, d_model=7)
        >>> tuple(positions(keras.ops.zeros((3, 5, 7))).shape)
        (3, 5, 7)
        >>> tuple(positions.embeddings.shape)
        (11, 7)
    """

    def __init__(self, max_positions: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_whole(max_positions=max_positions, d_model=d_model)
        self.max_positions, self.d_model = max_positions, d_model
        self.supports_masking = True

    def build(self, x_shape: Shape | None = None) -> None:
        check_width(x_shape, self.d_model)
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_positions, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, x: Tensor, start: int | Tensor = 0, positions: Tensor | None = None) -> Tensor:
        check_width(x.shape, self.d_model)
        check_rank(x, positions)
        length = x.shape[-2]
        if positions is None and length is not None and isinstance(start, int):
            if start + length > self.max_positions:
                raise ValueError(
                    f"x must end within max_positions={self.max_positions}, got positions "
                    f"{start} to {start + length - 1}"
                )
        if positions is None:
            positions = ops.arange(ops.shape(x)[-2]) + start
        positions = ops.minimum(positions, self.max_positions - 1)
        return x + ops.cast(ops.take(self.embeddings, positions, axis=0), x.dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_positions": self.max_positions,
            "d_model": self.d_model,
        }


@keras.saving.register_keras_serializable("tfformer")
class NoPositions(WithoutWeights):
    """x unchanged, for a model whose attention has its own positions, or which has none.

    Args, call arguments, returns, raises: see `SinusoidalPositionalEncoding`; D may be odd.
    """

    def call(self, x, start=0, positions=None):
        check_width(x.shape, self.d_model)
        check_rank(x, positions)
        return x


def of_options(options, **common):
    """Make the positions layer for a configuration's `NumberedOptions`; `common` are arguments of
    every Keras layer."""
    if options.positions == "none":
        return NoPositions(options.d_model, **common)
    if options.positions == "learned":
        return LearnedPositionalEmbedding(options.max_positions, options.d_model, **common)
    return SinusoidalPositionalEncoding(options.d_model, **common)
