"""Requests to a signature: values by input name, for example `{"text": ["a", "b"]}`.

`to_feeds` turns requests into an array for every input, and fills in the declared defaults as the
server does. A signature without requests gets requests generated from its inputs.
"""

import numpy as np
import tensorflow as tf

from .graph import Graph, Signature, TensorInfo, UsageError

TEXTS = [b"A short sentence.", b"", "Grüße aus Köln, 你好.".encode()]
IDS = [5, 6, 7, 3]  # small, so that they are in any vocabulary; 3 is eos
FLOATS = [0.0, 0.25, -0.5, 1.0]

Requests = dict[str, list[dict]]  # signature -> requests


def to_feeds(graph: Graph, requests: Requests) -> dict[str, list[dict[str, np.ndarray]]]:
    """{signature: the inputs of each request}, as arrays."""
    names = list(graph.signatures)
    for name, batch in requests.items():
        if name not in names:
            raise UsageError(f"requests must name signatures of {names}, got {name!r}")
        if not isinstance(batch, list) or not batch:
            raise UsageError(f"requests for {name!r} must be a list of one or more, got {batch!r}")
    return {
        name: [
            _inputs(name, signature, request)
            for request in requests.get(name) or make_requests(signature)
        ]
        for name, signature in graph.signatures.items()
    }


def make_requests(signature: Signature) -> list[dict]:
    """Generates two requests, with batches of 3 and 1, because no batch size may be fixed."""
    wanted = [key for key in signature.inputs if key not in signature.defaults]
    return [{key: _made_up(signature.inputs[key], batch) for key in wanted} for batch in (3, 1)]


def _made_up(info: TensorInfo, batch: int) -> np.ndarray:
    shape = (None,) if info.shape is None else info.shape
    shape = [size or (batch if axis == 0 else len(IDS)) for axis, size in enumerate(shape)]
    dtype = tf.as_dtype(info.dtype)
    if dtype == tf.string:
        return np.resize(np.array(TEXTS, object), shape)
    if dtype.is_bool:
        return np.resize([True, False], shape)
    return np.resize(IDS if dtype.is_integer else FLOATS, shape).astype(dtype.as_numpy_dtype)


def _inputs(name: str, signature: Signature, request: dict) -> dict[str, np.ndarray]:
    """Every input as an array: its value in the request, else the declared default."""
    if not isinstance(request, dict):
        raise UsageError(f"a request for {name!r} must be {{input: value}}, got {request!r}")
    for key in request:
        if key not in signature.inputs:
            wanted = list(signature.inputs)
            raise UsageError(f"a request for {name!r} must name inputs of {wanted}, got {key!r}")
    feeds = {}
    for key, info in signature.inputs.items():
        if key in request:
            feeds[key] = _to_array(request[key], info.dtype, f"input {key!r} of {name!r}")
        elif key in signature.defaults:
            feeds[key] = signature.defaults[key]
        else:
            raise UsageError(f"a request for {name!r} must give input {key!r}: it has no default")
    return feeds


def _to_array(value, dtype: str, what: str) -> np.ndarray:
    complaint = f"{what} must be {dtype}, got {value!r}"
    try:
        if dtype == "string":
            array = np.array(value, object)
            for i, element in enumerate(array.flat):
                array.flat[i] = element.encode() if isinstance(element, str) else element
            right = all(isinstance(element, bytes) for element in array.flat)
        else:
            wanted = tf.as_dtype(dtype).as_numpy_dtype
            given = np.asarray(value)
            right = given.size == 0 or np.can_cast(given.dtype, wanted, "same_kind")
            array = np.array(value, wanted)  # out of range: OverflowError
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(complaint) from error
    if not right:
        raise UsageError(complaint)
    return array
