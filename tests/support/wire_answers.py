"""Answers that no server should give, by HTTP as bytes and by gRPC as messages."""

import gzip
import json
import random
from typing import NamedTuple

import grpc
import tensorflow as tf
from google.protobuf import any_pb2
from hostile import http
from mutations import ODD_VALUES, damaged, mutated_json
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2
from wire_requests import NAMES, change_tensor

# What is asked, and what a good server answers: two texts a request.
BATCHES = [["ein Haus", "am See"], ["mit Bäumen", ""], ["niemand"]]
OUTPUTS = {"translation": "DT_STRING", "score": "DT_FLOAT", "truncated": "DT_BOOL"}
TERMINAL = "\x1b[2J\x1b]0;title\x07 \u202eno\r\nb\x00\x9b1m \u2028\x85 c\ud800"
# How long a client waits for a server that drips, and for any other.
SHORT, LONG = 0.3, 30


def _described(kind):
    return {"dtype": kind, "name": "x:0", "tensor_shape": {"dim": [{"size": "-1", "name": ""}],
            "unknown_rank": False}}  # fmt: skip


DESCRIPTION = {
    "model_spec": {"name": "tiny", "version": "1"},
    "metadata": {"signature_def": {"signature_def": {"serving_default": {
        "inputs": {"text": _described("DT_STRING")},
        "outputs": {name: _described(kind) for name, kind in OUTPUTS.items()},
        "method_name": "tensorflow/serving/predict",
        "defaults": {"seed": {"dtype": "DT_INT32", "tensor_shape": {}, "int_val": [0]}},
    }}}},
}  # fmt: skip


def document(texts):
    """The good answer to a request."""
    scores, flags = [-0.5] * len(texts), [False] * len(texts)
    return {"outputs": {"translation": texts, "score": scores, "truncated": flags}}


class Played(NamedTuple):
    """What a server answers in place of one of its good answers.

    Attributes:
        kind: of the case, in a word.
        place: of the answer: 0 is the model's description, then come those of BATCHES.
        answer: bytes.
        body: what its body is, whatever stands around it; None: nothing that could be read.
        fails: whether it cannot be taken for an answer.
        pause, reset: as `hostile.Raw` has them.
        timeout: seconds that the client is to wait.
    """

    kind: str
    place: int
    answer: bytes
    body: bytes | None = None
    fails: bool = False
    pause: float | None = None
    reset: bool = False
    timeout: float = LONG

    def __str__(self):
        return f"{self.kind} at {self.place}: {self.answer[:400]!r} {self.body and self.body[:200]}"


def good(place):
    body = DESCRIPTION if place == 0 else document(BATCHES[place - 1])
    return json.dumps(body).encode()


def _sized(body, headers=""):
    return http(body, headers=f"Content-Length: {len(body)}\r\n{headers}")


def _status(rng, place):
    status = rng.choice([*range(100, 600), 0, 99, 600, 999])
    body = rng.choice([good(place), b"", b"<html>no</html>", b'{"error": 5}', b'{"error": "no"}'])
    reason = rng.choice(["", "OK", "x" * 3000, "\x1b[2J", "é"])
    taken = 200 <= status < 300 and body == good(place)
    return Played("status", place, http(body, f"{status} {reason}"), body, not taken)


def _redirect(rng, place):
    where = rng.choice([
        "/x", "", "ftp://127.0.0.1/", "file:///etc/passwd", "data:,{}", "http://[::1", "//",
        "\x1b[2J",
        "http://127.0.0.1:1/", "?" * 9000, "http://a b/", "javascript:1", "http://127.0.0.1:x/",
        "http://:80", "é", "http://%00/", "https://127.0.0.1:1/",
    ])  # fmt: skip
    status = rng.choice([301, 302, 303, 307, 308])
    answer = http(b"", f"{status} x", f"Location: {where}\r\n")
    return Played("redirect", place, answer, None, True)


def _error(rng, place):
    message = rng.choice([
        TERMINAL, "x" * 100_000, "", "a\n" * 999, {"a": 1}, None, ["x"], "assertion failed: [",
        "[[{{",
        "\ud800" * 99, "\x1b" * 999, "\u202e" * 999,
    ])  # fmt: skip
    body = json.dumps({"error": message}).encode()
    status = rng.choice([400, 401, 403, 404, 409, 429, 500, 501, 502, 503, 504, 499, 418])
    return Played("error", place, http(body, f"{status} x"), None, True)


def _heads(rng, place):
    """Headers that say of the body what it is not, or nothing at all."""
    body = good(place)
    length = rng.choice([len(body), len(body) + 9, 10**15, -1, "x", "", "1" * 5000])
    headers = rng.choice([
        f"Content-Length: {length}\r\n", "X: y\r\n" * rng.choice([9, 99, 200, 5000]),
        f"X: {'y' * rng.choice([9, 70_000])}\r\n", "no colon\r\n", ": \r\n", " folded\r\n",
        "Content-Type: text/html\r\n", "Content-Type: \x1b[2J\r\n", "\x00: \x00\r\n",
        "Set-Cookie: a=b\r\n", "Connection: upgrade\r\n", "Transfer-Encoding: gzip\r\n",
        "Content-Encoding: br\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n",
    ])  # fmt: skip
    return Played("head", place, http(body, headers=headers), body)


_BOMB = gzip.compress(b" " * 10**7)


def _bomb(rng, place):
    """Compressed, which nobody asked for: it is not unpacked."""
    body = rng.choice([gzip.compress(good(place)), _BOMB])
    return Played("bomb", place, _sized(body, "Content-Encoding: gzip\r\n"), None, True)


def _in_chunks(rng, body):
    parts = []
    while body:
        size = rng.randrange(1, 90)
        parts.append(b"%x\r\n%s\r\n" % (len(body[:size]), body[:size]))
        body = body[size:]
    return http(b"".join(parts) + b"0\r\n\r\n", headers="Transfer-Encoding: chunked\r\n")


def _chunks(rng, place):
    return Played("chunks", place, _in_chunks(rng, good(place)), good(place))


def _bad_chunks(rng, place):
    answer = _in_chunks(rng, good(place))
    head, _, body = answer.partition(b"\r\n\r\n")
    if rng.random() < 0.5:
        # The last chunk ends it: what is cut before that is no answer.
        end = b"" if rng.random() < 0.5 else b"-1\r\n"
        cut = body[: rng.randrange(len(body) - 4)]
        fails = not end
        return Played("bad chunks", place, head + b"\r\n\r\n" + cut + end, good(place), fails)
    sizes = [b"zz", b"-5", b"f" * 300, b"fffffff", b"", b"0x5", b" 5", b"5;" + b"x" * 9000]
    body = rng.choice(sizes) + b"\r\n" + body
    return Played("bad chunks", place, head + b"\r\n\r\n" + body, good(place))


def _cut(rng, place):
    answer = rng.choice([http(good(place)), _sized(good(place))])
    answer = answer[: rng.randrange(len(answer))]
    return Played("cut", place, answer, None, True, reset=rng.random() < 0.3)


def _body(rng, place):
    body = mutated_json(rng, json.loads(good(place)))
    if rng.random() < 0.1:
        body = rng.choice(ODD_VALUES).encode()
    return Played("body", place, _sized(body), body)


def _damaged(rng, place):
    """The body is what is left behind the head; a length is damaged too."""
    answer = damaged(rng, rng.choice([http(good(place)), _sized(good(place))]))
    return Played("damaged", place, answer, answer[answer.find(b"{") :])


def _random(rng, place):
    return Played("random", place, rng.randbytes(rng.choice([1, 99, 100_000])), None, True)


def _more(rng, place):
    """An answer, and what nobody asked for behind it."""
    behind = rng.choice([b"\0" * 99, http(good(1)), b"HTTP/1.1 500 no\r\n\r\n", b"{" * 10_000])
    return Played("more", place, _sized(good(place)) + behind, good(place))


KINDS = [
    _status, _redirect, _error, _heads, _heads, _bomb, _chunks, _bad_chunks, _cut, _body, _body,
    _body, _damaged, _damaged, _random, _more,
]  # fmt: skip


def played(count, seed=13):
    """That many cases of all kinds in turn."""
    rng = random.Random(seed)
    for number in range(count):
        yield KINDS[number % len(KINDS)](rng, rng.choice([0, 1, 2, 3]))


def drips():
    """Answers of which a byte comes each time before a socket's patience ends."""
    for place in (0, 2):
        for answer in (
            http(good(place)),
            _sized(good(place)),
            http(b"", "302 x", "Location: /" + "x" * 999 + "\r\n"),
            b"HTTP/1.1 100 Continue\r\n\r\n" * 99,
            http(b"1\r\n \r\n" * 999, headers="Transfer-Encoding: chunked\r\n"),
        ):
            yield Played("drip", place, answer, None, True, pause=0.1, timeout=SHORT)


# By gRPC.


class Message(NamedTuple):
    """What a server answers by gRPC in place of one of its good answers.

    Attributes:
        place: as `Played` has it.
        answer: bytes; or a status and its details.
    """

    place: int
    answer: bytes | tuple

    def __str__(self):
        return f"at {self.place}: {str(self.answer)[:600]}"


def message(place):
    """The good one."""
    if place:
        response = predict_pb2.PredictResponse()
        for name, values in document(BATCHES[place - 1])["outputs"].items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
        return response
    signatures = get_model_metadata_pb2.SignatureDefMap()
    definition = signatures.signature_def["serving_default"]
    definition.inputs["text"].dtype = types_pb2.DT_STRING
    definition.inputs["text"].tensor_shape.dim.add(size=-1)
    for name, kind in OUTPUTS.items():
        definition.outputs[name].dtype = types_pb2.DataType.Value(kind)
        definition.outputs[name].tensor_shape.dim.add(size=-1)
    return _packed(signatures.SerializeToString(), any_pb2.Any())


def _packed(data, packed):
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    packed.type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    packed.value = data
    response.metadata["signature_def"].CopyFrom(packed)
    return response


def _changed(rng, place):
    """Tensors that are not what they say, are missing or have another name."""
    response = message(place)
    if not place:
        data = damaged(rng, response.metadata["signature_def"].value)
        return Message(place, _packed(data, any_pb2.Any()).SerializeToString())
    name = rng.choice(sorted(response.outputs))
    match rng.randrange(5):
        case 0:
            response.outputs[rng.choice(NAMES)].CopyFrom(response.outputs[name])
            if rng.random() < 0.7:
                del response.outputs[name]
        case 1:
            tensor = tf.make_tensor_proto(["a"] * rng.randrange(5))
            response.outputs["translation"].CopyFrom(tensor)
        case _:
            change_tensor(rng, response.outputs[name])
    return Message(place, response.SerializeToString())


def _broken(rng, place):
    data = message(place).SerializeToString()
    choices = [damaged(rng, data), rng.randbytes(rng.choice([1, 99, 9999])), b"", data + data]
    return Message(place, rng.choice(choices))


def _refused(rng, place):
    code = rng.choice([code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
    details = rng.choice([
        "", "no", TERMINAL.replace("\ud800", ""), "x" * 5000, "é" * 999, "a\nb" * 99, "%41%0a%zz",
        "x" * 100_000, 
    ])  # fmt: skip
    return Message(place, (code, details))


def messages(count, seed=17):
    """That many cases of gRPC."""
    rng, kinds = random.Random(seed), [_changed, _changed, _changed, _broken, _refused]
    for number in range(count):
        yield kinds[number % len(kinds)](rng, rng.choice([0, 1, 2, 3]))
