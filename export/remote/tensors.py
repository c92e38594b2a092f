"""Converts between Python values and the messages of gRPC. Needs the server's protocol buffers.

A size that the server claims is compared with what it sent before memory is allocated.
"""

import itertools
import math

from ..capi.fields import values_of
from .answers import AnswerError, RequestError, as_text

EMPTY_LISTS = 2**16


def tensor(name, value, dtype):
    """The TensorProto of an input. Raises `RequestError` if the value does not fit the type."""
    import tensorflow as tf

    try:
        return tf.make_tensor_proto(value, None if dtype is None else tf.as_dtype(dtype))
    except (TypeError, ValueError) as error:
        message = f"input {name} cannot be of the server's type {dtype}: {error}"
        raise RequestError("INVALID_ARGUMENT", message) from error


def signatures_of(response):
    """{signature: ({input: type}, {output: (type, shape)})} of a model's metadata."""
    from google.protobuf.message import DecodeError
    from tensorflow_serving.apis import get_model_metadata_pb2

    signatures = get_model_metadata_pb2.SignatureDefMap()
    try:
        fits = response.metadata["signature_def"].Unpack(signatures)
    except DecodeError as error:
        raise AnswerError("the metadata of the model is damaged") from error
    if not fits:
        raise AnswerError("the metadata of the model has no signature_def")
    return {
        name: (
            {key: info.dtype for key, info in definition.inputs.items()},
            {key: _declared(info) for key, info in definition.outputs.items()},
        )
        for name, definition in signatures.signature_def.items()
    }


def _declared(info):
    from tensorflow.core.framework.types_pb2 import DataType

    shape, number = info.tensor_shape, info.dtype
    sizes = [None if dim.size < 0 else dim.size for dim in shape.dim]
    kind = DataType.Name(number) if number in DataType.values() else str(number)
    return kind, None if shape.unknown_rank else sizes


def outputs_of(response):
    """{name: nested lists} of an answer. Raises `AnswerError` if values do not fit the shape."""
    return {name: _values(name, proto) for name, proto in response.outputs.items()}


def _values(name, proto):
    import tensorflow as tf

    sizes = [dim.size for dim in proto.tensor_shape.dim]
    fits = not proto.tensor_shape.unknown_rank and min(sizes, default=0) >= 0
    if fits and not proto.tensor_content:
        # TensorFlow would repeat the last value to fill any claimed size.
        fits = math.prod(sizes) == _count(proto)
    # Nested lists without values take memory too.
    lists = math.prod(itertools.takewhile(bool, sizes))
    if not fits or lists > max(proto.ByteSize(), EMPTY_LISTS):
        raise AnswerError(f"the server's output {name} has not the values of its shape {sizes}")
    try:
        return as_text(tf.make_ndarray(proto).tolist())
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise AnswerError(f"the server's output {name} is no tensor: {error}") from error


def _count(proto):
    """The number of values in a TensorProto; None if its type is unknown."""
    import tensorflow as tf

    try:
        dtype = tf.as_dtype(proto.dtype)
    except TypeError:
        return None
    return len(values_of(proto, dtype.name)) // (2 if dtype.is_complex else 1)
