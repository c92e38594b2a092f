"""Checks the answers of a server and converts them to Python values. Standard library only."""

import base64
import json
import re
import struct
import unicodedata

from .credentials import HIDDEN

# The numeric types of default values that are added to a REST request, with their `struct` format.
KINDS = {"DT_INT32": "<i", "DT_FLOAT": "<f"}
# HTTP status -> gRPC status.
CODES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    409: "ABORTED", 429: "RESOURCE_EXHAUSTED", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}  # fmt: skip
# Whether a value is of a type that a signature declares. Values of other types are not checked.
VALUES = {
    "DT_STRING": lambda value: isinstance(value, str) and is_text(value),
    "DT_BOOL": lambda value: isinstance(value, bool),
    **dict.fromkeys(("DT_INT32", "DT_INT64"), lambda value: type(value) is int),
    **dict.fromkeys(("DT_FLOAT", "DT_DOUBLE"), lambda value: type(value) in (int, float)),
}
LONGEST_MESSAGE = 500  # characters
# Escape sequences of a terminal: titles, colours or cursor positions, commands of one letter.
ESCAPES = r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]"

# TensorFlow's prefix of an assertion's message, whose parts are in brackets.
ASSERTION = "assertion failed: ["


class RequestError(Exception):
    """An error that the server returned instead of a prediction.

    Attributes:
        code: the name of a gRPC status, for example `"INVALID_ARGUMENT"`. In REST several share
            one status: FAILED_PRECONDITION becomes INVALID_ARGUMENT.
        message: the server's message.
    """

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class AnswerError(RequestError):
    """An answer that does not fit the request."""

    def __init__(self, message):
        super().__init__("UNKNOWN", message)


def plain(message, token=None):
    """A server's message as one line of limited length that is safe to print on a terminal.

    Escape sequences, control characters and characters that change the direction of text are
    removed. The token is hidden, even if such characters stood between its letters.
    """
    message = re.sub(ESCAPES, "", message)
    hidden = ("Cc", "Cf", "Cs")
    letters = (c for c in message if c.isspace() or unicodedata.category(c) not in hidden)
    message = " ".join("".join(letters).split())
    if token:
        message = message.replace(token, HIDDEN)
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]} ..."


# The outputs of `serving_default` that are printed, one for each kind of model that answers with
# text.
PRINTED = ("translation", "continuation", "label", "filled", "tags", "answer")


def text_output(names):
    """The name of the output of `serving_default` that is printed. Raises an `AnswerError`."""
    for name in PRINTED:
        if name in names:
            return name
    raise AnswerError("the server's answer has no list `translation`")


def texts_of(outputs, rows):
    """The printed output of a request with `rows` texts. Raises an `AnswerError` if it does not
    fit."""
    found = outputs[text_output(outputs)]
    if not isinstance(found, list):
        raise AnswerError(f"the server's answer has no list `{text_output(outputs)}`")
    if len(found) != rows:
        raise AnswerError(f"the server answered {rows} texts with {len(found)} translations")
    if not all(isinstance(text, str) and is_text(text) for text in found):
        raise AnswerError("the server's answer has a translation that is no text")
    return found


def check_outputs(outputs, declared):
    """Raises an `AnswerError` if outputs, {name: nested lists}, do not fit their signature.

    `declared` is {name: (type, shape)}. A size or the shape may be None.
    """
    for name, (kind, shape) in declared.items():
        if name not in outputs:
            raise AnswerError(f"the server's answer has no output {name}")
        is_value = VALUES.get(kind)
        # In JSON, bytes are an object.
        if shape is None or is_value is None or name.endswith("_bytes"):
            continue
        if not _fits(outputs[name], is_value, shape):
            raise AnswerError(f"the server's output {name} must be {kind} of shape {shape}")


def _fits(value, is_value, shape):
    if not shape:
        return is_value(value)
    if not isinstance(value, list) or shape[0] not in (None, len(value)):
        return False
    return all(_fits(item, is_value, shape[1:]) for item in value)


def is_text(value):
    """Whether a string has no lone surrogate, which JSON allows."""
    return value.isascii() or not re.search("[\ud800-\udfff]", value)


def signatures_of(found):
    """{signature: (defaults of inputs, declared outputs)} from the JSON of a model's metadata."""
    try:
        return {name: (_defaults(parts), _declared(parts)) for name, parts in found.items()}
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise AnswerError(f"the metadata of the model is damaged: {error!r}") from error


def _defaults(signature):
    return {
        name: [scalar(proto)] if _is_list(proto) else scalar(proto)
        for name, proto in (signature.get("defaults") or {}).items()
        if proto["dtype"] in (*KINDS, "DT_STRING")
    }


def _is_list(proto):
    """Whether a default is a list of one element, such as a language, which fits any rows."""
    return bool((proto.get("tensorShape") or proto.get("tensor_shape") or {}).get("dim"))


def _declared(signature):
    """{name: (type, shape)} for `check_outputs`."""
    found = {}
    for name, info in (signature.get("outputs") or {}).items():
        shape = info.get("tensor_shape") or {}
        sizes = [int(size["size"]) for size in shape.get("dim") or []]
        sizes = [None if size < 0 else size for size in sizes]
        found[name] = str(info["dtype"]), None if shape.get("unknown_rank") else sizes
    return found


def scalar(proto):
    """The number or the text in a TensorProto of one element, parsed from JSON."""
    if proto["dtype"] == "DT_STRING":
        return as_text(
            base64.b64decode((proto.get("stringVal") or proto.get("string_val") or [""])[0])
        )
    for name, value in proto.items():
        if name.endswith("_val") and value:
            if type(value[0]) not in (int, float):
                raise ValueError(f"a default must be a number, got {value[0]!r}")
            return value[0]
    kind = KINDS[proto["dtype"]]
    content = base64.b64decode(proto.get("tensor_content", ""), validate=True)
    return struct.unpack(kind, content or bytes(struct.calcsize(kind)))[0]


def as_text(value):
    """The same nested lists with bytes decoded to str."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def without_graph(message):
    """A server's message without the names of nodes in its graph.

    `assertion failed: [rows must be in [0, 8], got] [9]\\n [[{{node Assert}}]]` becomes
    `rows must be in [0, 8], got 9`.
    """
    message = re.split(r"\s*\[\[\{\{", message.strip(), maxsplit=1)[0]
    if not message.startswith(ASSERTION):
        return message
    return message.removeprefix(ASSERTION).removesuffix("]").replace("] [", " ")


def message_of(status, body, token=None):
    """The message in the body of an HTTP error. The token is hidden before the text is cut."""
    body = body.decode(errors="replace")
    if token:
        body = body.replace(token, HIDDEN)
    try:
        return without_graph(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"HTTP {status}: {body[:200]}"
