"""Converts between the JSON of the REST API and tensors, as `util/json_tensor.cc` does.

A request has a list of rows under `instances`, or whole inputs under `inputs`. The answer is under
`predictions` or `outputs`. REST has no default values: the server fills them in only for gRPC, and
a REST request must name every input of its signature.
"""

import base64
import json

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from ..capi.library import ServingError, invalid
from .tensors import MAX_DIMENSIONS, check_rows

OFTEN = 1024  # values of a list between two checks of the deadline


def parse(body, find, deadline):
    """Reads a PredictRequest from a body. Also returns whether the request is a list of rows.

    `find` takes a signature's name and returns its `Signature` and the maximum number of rows.
    """
    document = _parse_json(body)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {_shown(document)} Is not object")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {_shown(document)} not formatted correctly. 'signature_name' key must be "
            f"a string value."
        )
    signature, max_rows = find(name)
    request = predict_pb2.PredictRequest()
    request.model_spec.signature_name = name
    inputs = {key: info.dtype for key, info in signature.inputs.items()}
    keys = {"instances", "inputs"} & set(document)
    if not keys:
        raise invalid("Missing 'inputs' or 'instances' key")
    if len(keys) == 2:
        raise invalid(
            f"JSON Value: {_shown(document)} Not formatted correctly expecting only one of "
            f"'inputs' or 'instances' keys to exist "
        )
    by_rows = "instances" in document
    given = document["instances" if by_rows else "inputs"]
    values = (_rows if by_rows else _whole)(given, inputs, max_rows, deadline)
    for key, array in values.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(array, tf.as_dtype(inputs[key])))
    return request, by_rows


def to_json(response, by_rows):
    """Converts a PredictResponse into the body of an answer, as bytes."""
    arrays = {key: tf.make_ndarray(proto) for key, proto in sorted(response.outputs.items())}
    if by_rows:
        sizes = {}
        for key, array in arrays.items():
            if array.ndim == 0:
                raise invalid(f"Tensor name: {key} has no shape information ")
            sizes.setdefault(len(array), key)
            if len(sizes) > 1:
                first, size = list(sizes)[0], len(array)
                raise invalid(
                    f"Tensor name: {key} has inconsistent batch size: {size} expecting: {first}"
                )
    lists = {key: _to_list(key, array) for key, array in arrays.items()}
    if len(lists) == 1:
        [answer] = lists.values()
    elif by_rows:
        answer = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    else:
        answer = lists
    text = json.dumps({"predictions" if by_rows else "outputs": answer}, ensure_ascii=False)
    return text.encode("utf-8", "surrogateescape")


def _parse_json(body):
    """Parses JSON. Like the server, it keeps bytes that are not UTF-8; here as surrogates."""
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        text, valid = body.decode("utf-8", "surrogateescape"), body.decode("utf-8", "replace")
        document = json.loads(text)
        # Without those bytes, a surrogate can only come from an escape: half of a pair.
        escaped = document if text == valid else json.loads(valid)
        json.dumps(escaped, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise invalid("JSON Parse error: The surrogate pair in string is invalid.") from error
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {error}") from error
    return document


def _rows(instances, inputs, max_rows, deadline):
    """{input: array} from a list of rows."""
    if not isinstance(instances, list):
        raise invalid("JSON Value: Excepting 'instances' to be an list/array")
    if not instances:
        raise invalid("JSON Value: No values in 'instances' array")
    check_rows("instances", len(instances), max_rows)
    by_name = _is_object(instances[0])
    if not by_name and len(inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    columns = {key: [] for key in inputs}
    for number, row in enumerate(instances):
        deadline.check("reading the request")
        if _is_object(row) != by_name:
            kind = "object but got list" if by_name else "value/list but got object"
            raise invalid(f"Expecting {kind} at item {number} of input list")
        row = row if by_name else {next(iter(inputs)): row}
        where = f"Failed to process element: {number}"
        for key, value in row.items():
            try:
                if key not in inputs:
                    raise invalid(f"JSON object: does not have named input: {key}")
                columns[key].append(_array(value, inputs[key], deadline))
                first, last = columns[key][0].shape, columns[key][-1].shape
                if first != last:
                    raise invalid(f"Expecting shape {list(first)} but got: {list(last)}")
            except ServingError as error:
                message = f"{where} key: {key} of 'instances' list. Error: {error}"
                raise ServingError(error.code_name, message) from error
        if set(row) != set(inputs):
            raise invalid(
                f"{where} of 'instances' list. JSON object: {_shown(row)} keys must be equal to: "
                f"{','.join(sorted(inputs))}"
            )
    return {key: np.stack(rows) for key, rows in columns.items()}


def _whole(values, inputs, max_rows, deadline):
    """{input: array} from whole tensors by name. With one input, the tensor may come without it."""
    if not _is_object(values):
        if len(inputs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        values = {next(iter(inputs)): values}
    for key in sorted(inputs):
        if key not in values:
            raise invalid(f"Missing named input: {key} in 'inputs' object.")
        if isinstance(values[key], list):
            check_rows(key, len(values[key]), max_rows)
    return {key: _array(values[key], dtype, deadline) for key, dtype in inputs.items()}


def _array(value, dtype, deadline):
    """Converts a nested list into an array. All lists of a level must have the same length."""
    shape, inner = [], value
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
        if len(shape) > MAX_DIMENSIONS:
            raise invalid(f"at most {MAX_DIMENSIONS} dimensions, got more")
    leaves = []
    _collect(value, shape, 0, dtype, leaves, deadline)
    array = np.empty(len(leaves), object if dtype == "string" else dtype)
    array[:] = leaves
    return array.reshape(shape)


def _collect(value, shape, level, dtype, leaves, deadline):
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {_shown(value)} found at incorrect level: {level + 1} in the JSON "
                f"DOM. Expected at level: {len(shape)}"
            )
        leaves.append(_leaf(value, dtype))
        return
    if level >= len(shape):
        raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: "
            f"{shape[level]}"
        )
    for place, item in enumerate(value):
        if place % OFTEN == 0:
            deadline.check("reading the request")
        _collect(item, shape, level + 1, dtype, leaves, deadline)


def _leaf(value, dtype):
    """Checks a value against the type. Strings become bytes; they may come as {"b64": ...}."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if dtype == "string" and _is_base64(value):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except ValueError as error:
            raise invalid("Unable to base64 decode") from error
    if dtype == "string" and isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if dtype == "bool" and isinstance(value, bool):
        return value
    if dtype.startswith("float") and number:
        bits = np.finfo(dtype).nmant + 1  # an integer with more bits loses precision
        maximum = 2**bits - 1 if isinstance(value, int) else float(np.finfo(dtype).max)
        if abs(value) > maximum and abs(value) != float("inf"):
            raise invalid(
                f"Cannot convert JSON value: {_shown(value)} to float without loss of precision."
            )
        return value
    if dtype.startswith("int") and number and isinstance(value, int):
        if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            return value
    kind = {str: "String", dict: "Object", type(None): "Null", bool: str(value)}
    raise invalid(
        f"JSON Value: {_shown(value)} Type: {kind.get(type(value), 'Number')} is not of expected "
        f"type: {dtype}"
    )


def _is_object(value):
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value):
    return isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str)


def _to_list(key, array):
    if array.dtype == object:
        if key.endswith("_bytes"):
            leaves = [{"b64": base64.b64encode(value).decode()} for value in array.ravel()]
        else:
            leaves = [value.decode("utf-8", "surrogateescape") for value in array.ravel()]
        texts = np.empty(array.size, object)
        texts[:] = leaves
        return texts.reshape(array.shape).tolist()
    if array.dtype.kind == "f":  # the shortest decimals that read back as the same float32
        return array.astype(str).astype(float).tolist()
    return array.tolist()


def _shown(value, maximum=200):
    text, parts = "", json.JSONEncoder().iterencode(value)  # encode only the beginning
    while len(text) <= maximum and (part := next(parts, "")):
        text += part
    return text if len(text) <= maximum else text[:maximum] + "..."
