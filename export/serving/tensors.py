"""Turns a TensorProto into an array, as TensorFlow's `core/framework/tensor.cc` does.

A tensor of a few bytes may claim any shape, because its last value fills the rest. So its claimed
size is checked before memory is allocated.
"""

import math

import numpy as np
import tensorflow as tf

from ..capi.fields import values_of
from ..capi.library import DTYPES, invalid

# Bytes of a request after decompression: of a REST body or a gRPC message.
MAX_BYTES = 2**26
# Rows of a request, if the model's own limit is unknown.
MAX_ROWS = 100_000
# Elements of a string tensor, and of a numeric tensor that does not carry all of its values.
MAX_ELEMENTS = 1_000_000
MAX_DIMENSIONS = 32  # the limit of NumPy; a server's tensors have at most 254


def to_array(alias, info, proto, max_rows):
    """Turns the TensorProto of an input with at most `max_rows` rows into an array.

    Raises:
        ServingError: INVALID_ARGUMENT, raised before memory is allocated.
    """
    try:
        dtype = tf.as_dtype(proto.dtype)
    except TypeError as error:
        raise _invalid(alias, f"there is no type {proto.dtype}") from error
    if dtype.name != info.dtype:
        raise invalid(f"Expects {info.name} to be {info.dtype} but {dtype.name} is provided")
    if proto.dtype not in DTYPES:  # `ServingSession` cannot feed it; no exported signature has it
        raise _invalid(alias, f"{dtype.name} is not served")
    shape = _shape(alias, proto, max_rows)
    size, carried = math.prod(shape), len(values_of(proto, dtype.name))
    if carried > size:
        raise _invalid(alias, f"at most {size:,} values for its shape {shape}, got {carried:,}")
    if dtype != tf.string:
        carried = max(carried, len(proto.tensor_content) // dtype.size)
    # NumPy multiplies the sizes other than 0, even if the tensor has no elements.
    claimed = math.prod(filter(None, shape))
    if claimed > MAX_ELEMENTS and (dtype == tf.string or carried < claimed):
        raise _invalid(alias, f"at most {MAX_ELEMENTS:,} elements, got the shape {shape}")
    if not carried and not proto.tensor_content:  # `FromProtoField` fills the tensor with T()
        strings = dtype == tf.string
        return np.full(shape, b"", object) if strings else np.zeros(shape, dtype.as_numpy_dtype)
    try:
        array = tf.make_ndarray(proto)
    except (TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise _invalid(alias, f"its values do not fit its shape {shape}") from error
    if dtype == tf.string:
        return np.array(array, object).reshape(array.shape)
    return array


def check_rows(alias, rows, max_rows):
    """Raises INVALID_ARGUMENT if an input has more than `max_rows` rows."""
    if rows > max_rows:
        raise _invalid(alias, f"at most {max_rows:,} rows, got {rows:,}")


def _shape(alias, proto, max_rows):
    """The shape, checked like `TensorShape::IsValid` of `core/framework/tensor_shape.cc`."""
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise _invalid(alias, "its shape is not known")
    if len(shape) > MAX_DIMENSIONS:
        raise _invalid(alias, f"at most {MAX_DIMENSIONS} dimensions, got {len(shape)}")
    if shape:
        check_rows(alias, shape[0], max_rows)
    return shape


def _invalid(alias, why):
    """An INVALID_ARGUMENT with the message of `predict_util.cc` and the reason."""
    return invalid(f"tensor parsing error: {alias}: {why}")
