"""The matrices of layers: their values, the cost of their products, and how Muon splits them.

Keras stores a layer's matrix in several forms: as floats, as integers with scales after `quantize`,
and with a low-rank addition after `enable_lora`. Only this file reads `kernel`.
"""

import math
from typing import NamedTuple

import keras
from keras import ops

# The storage forms of a matrix that this file can read; None: floats.
READABLE = (None, "int8", "int4", "float8")


class Matrix(NamedTuple):
    """A matrix that multiplies each row of a layer's input.

    path: of its variable in the model.
    shape: (in, out).
    heads: how many matrices of attention heads it holds side by side. Default 1.
    axis: the axis along which they stand, 0 or 1. Default 1.
    of_memory: whether it multiplies the rows of the memory instead of the layer's own. Default
        False.
    """

    path: str
    shape: tuple
    heads: int = 1
    axis: int = 1
    of_memory: bool = False

    @classmethod
    def of(cls, layer, name="kernel", **options):
        """The matrix `name` of a built Keras layer."""
        # With LoRA, `kernel` is a sum; `_kernel` is its variable.
        variable = getattr(layer, f"_{name}", None)
        matrix = getattr(layer, name)
        return cls((matrix if variable is None else variable).path, tuple(matrix.shape), **options)


def float_matrix(layer):
    """The matrix of a layer as floats: dequantized, with LoRA's product added.

    Args:
        layer: a built `Dense`, an `EinsumDense` whose input axes come first, or another layer with
            a float `kernel`.

    Returns:
        float32, in the shape of the kernel. A quantized Keras layer also rounds its inputs, so its
        outputs differ from a product with this matrix by that rounding.

    Raises:
        ValueError: its form of quantization cannot be read, such as `"gptq"`.

    Example:
        >>> dense = keras.layers.Dense(3)
        >>> dense.build((None, 5))
        >>> before = float_matrix(dense)
        >>> dense.quantize("int8")
        >>> bool(np.allclose(float_matrix(dense), before, atol=0.01))
        True
    """
    mode = layer.quantization_mode
    if mode not in READABLE:
        raise ValueError(
            f"{layer.path} must be quantized by one of {READABLE[1:-1]} or not at all, got {mode!r}"
        )
    shape, stored = layer.kernel.shape, getattr(layer, "_kernel", None)
    matrix = layer.kernel if stored is None else ops.convert_to_tensor(stored)
    if mode == "int4":
        columns = math.prod(shape) // stored.shape[0]
        matrix = keras.quantizers.unpack_int4(matrix, columns, axis=-1)
    matrix = ops.cast(matrix, "float32")
    if mode in ("int8", "int4"):
        matrix = ops.reshape(_dequantized(layer, matrix), shape)  # [in, out], or more axes
    if getattr(layer, "lora_enabled", False):
        factor = layer.lora_alpha / layer.lora_rank
        matrix = matrix + factor * ops.matmul(layer.lora_kernel_a, layer.lora_kernel_b)
    return matrix


def float_bias(layer):
    """The bias of a `Dense`, float32 [out]; zeros if it has none."""
    if layer.use_bias:
        return ops.cast(layer.bias, "float32")
    return ops.zeros(layer.units, "float32")


def _dequantized(layer, matrix):
    """Dequantize integers, in the shape of the kernel, to float32 [in, out], by Keras's scales."""
    scale, zero = ops.cast(layer.kernel_scale, "float32"), getattr(layer, "kernel_zero", None)
    if zero is None:  # a scale for each column
        scale = ops.reshape(scale, (-1,))  # [out]
        return ops.reshape(matrix, (-1, scale.shape[0])) / scale  # [in, out]
    groups = ops.cast(layer.g_idx, "int32")  # of each row
    zero = ops.take(ops.cast(zero, "float32"), groups, axis=0)
    return (matrix - zero) * ops.take(scale, groups, axis=0)
