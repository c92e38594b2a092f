"""The array that a TensorProto stands for, after TensorFlow's `core/framework/tensor.cc`.

A tensor of a few bytes may claim any shape, for its last value fills the rest: what it claims is
counted before anything is made of it.
"""

import math

import numpy as np
import tensorflow as tf

from export.capi.fields import values_of
from export.capi.library import DTYPES, ServingError

# Of a request, unpacked: by REST a body, by gRPC a message.
MOST_BYTES = 2**26
# Rows of a request to a model of which it is not known how many it takes.
MOST_ROWS = 100_000
# Strings of a tensor, and numbers of one that does not carry each of them.
MOST_ELEMENTS = 1_000_000
MOST_DIMENSIONS = 32  # that NumPy walks through; a server's tensors have at most 254


def to_array(alias, info, proto, most_rows):
    """The array of an input.

    Args:
        alias, info: the input's name, and its `export.verification.graph.TensorInfo`.
        proto: the TensorProto.
        most_rows: how large its first dimension may be.

    Raises:
        ServingError: INVALID_ARGUMENT, before memory is taken for it.
    """
    try:
        dtype = tf.as_dtype(proto.dtype)
    except TypeError as error:
        raise _invalid(alias, f"there is no type {proto.dtype}") from error
    if dtype.name != info.dtype:
        message = f"Expects {info.name} to be {info.dtype} but {dtype.name} is provided"
        raise ServingError("INVALID_ARGUMENT", message)
    if proto.dtype not in DTYPES:  # what `ServingSession` cannot feed, no signature here wants
        raise _invalid(alias, f"{dtype.name} is not served")
    shape = _shape(alias, proto, most_rows)
    size, carried = math.prod(shape), len(values_of(proto, dtype.name))
    if carried > size:
        raise _invalid(alias, f"at most {size:,} values for its shape {shape}, got {carried:,}")
    if dtype != tf.string:
        carried = max(carried, len(proto.tensor_content) // dtype.size)
    # NumPy counts the sizes other than 0 even of a tensor without elements.
    claimed = math.prod(filter(None, shape))
    if claimed > MOST_ELEMENTS and (dtype == tf.string or carried < claimed):
        raise _invalid(alias, f"at most {MOST_ELEMENTS:,} elements, got the shape {shape}")
    if not carried and not proto.tensor_content:  # `FromProtoField` fills it with T()
        strings = dtype == tf.string
        return np.full(shape, b"", object) if strings else np.zeros(shape, dtype.as_numpy_dtype)
    try:
        array = tf.make_ndarray(proto)
    except (TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise _invalid(alias, f"its values do not fit its shape {shape}") from error
    if dtype == tf.string:
        return np.array(array, object).reshape(array.shape)
    return array


def check_rows(alias, rows, most_rows):
    """Raises INVALID_ARGUMENT if an input has more rows than it may have."""
    if rows > most_rows:
        raise _invalid(alias, f"at most {most_rows:,} rows, got {rows:,}")


def _shape(alias, proto, most_rows):
    """The shape, if it is one: `TensorShape::IsValid` of `core/framework/tensor_shape.cc`."""
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise _invalid(alias, "its shape is not known")
    if len(shape) > MOST_DIMENSIONS:
        raise _invalid(alias, f"at most {MOST_DIMENSIONS} dimensions, got {len(shape)}")
    if shape:
        check_rows(alias, shape[0], most_rows)
    return shape


def _invalid(alias, why):
    """The words of `predict_util.cc`, and why."""
    return ServingError("INVALID_ARGUMENT", f"tensor parsing error: {alias}: {why}")
