"""What a server answers, as Python's values, by the standard library alone."""

import base64
import json
import struct

from export.credentials import HIDDEN

# Types of default values that a request by REST is filled up with, as `struct` has them.
KINDS = {"DT_INT32": "<i", "DT_FLOAT": "<f"}


def scalar(proto):
    """The number in a TensorProto of rank 0, as JSON has it."""
    for name, value in proto.items():
        if name.endswith("_val") and value:
            return value[0]
    kind = KINDS[proto["dtype"]]
    content = base64.b64decode(proto.get("tensor_content", "")) or bytes(struct.calcsize(kind))
    return struct.unpack(kind, content)[0]


def as_text(value):
    """The same nested lists with str in place of bytes."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def message_of(error, token=None):
    """What the body of an error of HTTP says, without the token: a cut would leave a part of it."""
    body = error.read().decode(errors="replace")
    if token:
        body = body.replace(token, HIDDEN)
    try:
        return json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {error.code}: {body[:200]}"
