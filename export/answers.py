"""What a server answers, as Python's values, by the standard library alone."""

import base64
import json
import re
import struct

from export.credentials import HIDDEN

# Types of default values that a request by REST is filled up with, as `struct` has them.
KINDS = {"DT_INT32": "<i", "DT_FLOAT": "<f"}


# What TensorFlow writes before the parts of a check's message, each in brackets.
ASSERTION = "assertion failed: ["


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


def without_graph(message):
    """A server's message without the names that its graph has for things.

    `assertion failed: [rows must be in [0, 8], got] [9]\\n [[{{node Assert}}]]` is
    `rows must be in [0, 8], got 9`.
    """
    message = re.split(r"\s*\[\[\{\{", message.strip(), maxsplit=1)[0]
    if not message.startswith(ASSERTION):
        return message
    return message.removeprefix(ASSERTION).removesuffix("]").replace("] [", " ")


def message_of(error, token=None):
    """What the body of an error of HTTP says, without the token: a cut would leave a part of it."""
    body = error.read().decode(errors="replace")
    if token:
        body = body.replace(token, HIDDEN)
    try:
        return without_graph(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"HTTP {error.code}: {body[:200]}"
