"""Requests that nobody should make, byte by byte: heads of HTTP, and messages of gRPC."""

import json
import random
import string
from typing import NamedTuple

from mutations import damaged
from server_process import MODEL, PREDICTION
from serving import make_request
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
)

BODY = json.dumps({"instances": ["a little house"]}).encode()
LENGTH = b"Content-Length: %d" % len(BODY)
POST, GET = b"POST /v1/models/tiny:predict", b"GET /v1/models/tiny"
# Of these an answer may have any, if nothing says which.
ANY = frozenset({200, 400, 403, 404, 408, 413, 414, 431, 501, 505})


class Head(NamedTuple):
    """Bytes, and what may be answered.

    Attributes:
        said: what is sent; end, pieces: as `ServerProcess.by_rest` has them.
        statuses: of each answer; least, most: how many answers there are.
        methods: of the requests.
    """

    said: bytes
    statuses: frozenset = ANY
    least: int = 0
    most: int = 1
    end: str = "shut"
    pieces: int = 1
    methods: tuple = ()

    def __str__(self):
        return f"{self.said[:300]!r} ({len(self.said)} bytes) {self[1:]}"


def request(line=POST + b" HTTP/1.1", headers=(LENGTH,), body=BODY, end=b"\r\n"):
    return end.join([line, *headers, b"", b""]) + body


def _good(rng):
    names = [b"Content-Length", b"content-length", b"CONTENT-LENGTH"]
    length = rng.choice(names) + b":" + rng.choice([b"", b" ", b"\t", b"   "]) + b"%d" % len(BODY)
    others = [b"X-%d: %s" % (n, b"y" * rng.randrange(99)) for n in range(rng.randrange(60))]
    others += rng.sample([b"Accept: */*", b"Host: localhost:1", b"Expect: 100-continue"], 2)
    close = rng.random() < 0.3
    headers = [*others, length, *[b"Connection: close"] * close]
    end = "wait" if close else "shut"
    said = request(headers=headers)
    return Head(said, frozenset({200}), 1, end=end, pieces=rng.choice([1, 2, 50]))


def _methods(rng):
    letters = "".join(rng.choices(string.printable[:94], k=rng.choice([1, 3, 20, 3000])))
    method = rng.choice([
        "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI", "get",
        "GETGET", "POST\0", "__init__", "\x16\x03\x01", letters,
    ])  # fmt: skip
    path = rng.choice(["/v1/models/tiny:predict", "/v1/models/tiny", "*", "/", "/v1/", "/metrics"])
    line = f"{method} {path} HTTP/1.1".encode()
    return Head(request(line), methods=(method,), most=2)


def _versions(rng):
    version = rng.choice([
        b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/-1.1", b"HTTP/1.1.1",
        b"HTTP/1", b"http/1.1", b"HTTP/1.\xd9\xa1", b"HTTP/" + b"1" * 500 + b".1", b"FTP/1.1",
        b"HTTP/1.1 x", b"HTTP/ 1.1", b"HTTP/0.9", b"", b"HTTP/+1.1", b"HTTP/1_0.1", b"HTTP/01.01",
    ])  # fmt: skip
    line = rng.choice([POST, GET]) + b" " + version
    return Head(request(line), most=2)


def _lengths(rng):
    size = len(BODY)
    length = rng.choice([
        b"%d" % (size + rng.randrange(1, 99)), b"%d" % rng.randrange(size), b"-%d" % size,
        b"+%d" % size, b"0x1a", b"1e1", b"%d.0" % size, b"", b" ", b"%d,%d" % (size, size),
        b"%d, %d" % (size, size + 1), b"9" * rng.randrange(9, 5000), b"\xd9\xa3", b"%d x" % size,
        b"0" * 3000 + b"%d" % size, b"1_0", b"%d;x" % size, b"\0%d" % size, b"2147483648",
        b"268435457", b"18446744073709551616", b"-0",
    ])  # fmt: skip
    headers = [b"Content-Length: " + length]
    if rng.random() < 0.3:
        headers.insert(rng.randrange(2), rng.choice([LENGTH, b"Content-Length: 7", b"X: y"]))
    return Head(request(headers=headers), ANY - {404, 501}, most=2)


def _chunked(rng, body=BODY):
    parts, start = [], 0
    while start < len(body):
        part = body[start : start + rng.randrange(1, 20)]
        extension = rng.choice([b"", b"", b";x=y", b';x="y"', b" "])
        form = rng.choice([b"%x", b"%X", b"%04x"])
        parts.append(form % len(part) + extension + b"\r\n" + part + b"\r\n")
        start += len(part)
    trailers = b"".join(b"X-%d: y\r\n" % n for n in range(rng.choice([0, 0, 1, 99])))
    return b"".join(parts) + b"0\r\n" + trailers + b"\r\n"


CHUNKED = b"Transfer-Encoding: chunked"


def _chunks(rng):
    said = request(headers=[CHUNKED], body=_chunked(rng))
    return Head(said, frozenset({200}), 1, pieces=rng.choice([1, 3, 40]))


def _bad_chunks(rng):
    body = damaged(rng, _chunked(rng))
    if rng.random() < 0.3:
        size = rng.choice(
            [b"-1", b"ffffffff", b"f" * 17, b"0x5", b"", b"g", b"1" * 5000, b"10000000"]
        )
        body = size + b"\r\n" + body
    coding = rng.choice([
        b"chunked", b"chunked", b"Chunked", b"gzip", b"gzip, chunked", b"chunked, chunked", b"",
        b"identity", b"\x0bchunked", b"chunked;x", b"xchunked",
    ])  # fmt: skip
    headers = [b"Transfer-Encoding: " + coding, *rng.choice([[], [], [LENGTH], [CHUNKED]])]
    return Head(request(headers=headers, body=body), most=8)


def _lines(rng):
    """Heads whose lines are none, are many or long."""
    line = rng.choice([
        b"no colon", b": no name", b"", b" folded", b"X: a\r\n b", b"X : y", b"X: \0",
        b"\xff: \xff",
        b"X: a\rb", b"X:" + b"y" * 70_000, b"\0", b"X: y\n\nGET / HTTP/1.1", b"X" * 65_000, b"\r",
        b"Connection: upgrade\r\nUpgrade: h2c", b"Expect: 200-ok", b"Content-Type: text/\xe9",
        b"X: (" + b"(" * 5000, b"X: =?utf-8?q?=ff?=", b"Connection: close, keep-alive",
    ])  # fmt: skip
    headers = [LENGTH, b"Accept: */*"]
    headers.insert(rng.randrange(3), line)
    if rng.random() < 0.2:
        headers = [b"X-%d: y" % n for n in range(rng.choice([99, 101, 2000, 100_000]))]
    end = rng.choice([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
    return Head(request(headers=headers, end=end), most=4)


def _hosts(rng):
    port = rng.choice([b"", b":8501", b":", b":99999"])
    mine = rng.choice([b"localhost", b"LOCALHOST", b"localhost.", b"127.0.0.1", b"[::1]"])
    foreign = rng.choice([
        b"evil.example", b"localhost.evil.example", b"evil.example/localhost", b"127.0.0.1.nip.io",
        b"localhost@evil.example", b"", b"::1", b"0", b"127.1", b"2130706433", b"localhost..",
        b"\xe2\x93\x9bocalhost", b"localhost:1:2", b"local host", b"localhost\0", b"0.0.0.0",
    ])  # fmt: skip
    good = rng.random() < 0.3
    headers = [b"Host: " + (mine if good else foreign) + port, LENGTH]
    if not good and rng.random() < 0.3:
        headers.insert(rng.randrange(3), b"Host: localhost")
    return Head(request(headers=headers), frozenset({200 if good else 403}), 1)


PATHS = [
    "/v1/models/tiny", "/v1/models/tiny/metadata", "/v1/models/tiny/versions/1", "/v1/models",
    "/v1/models/tiny/versions/1/metadata", "/v1/models/tiny/labels/stable", "/v1/models/other",
    "/monitoring/prometheus/metrics", "/v1/models/tiny/versions/9", "/v1/models/tiny%00",
    "/v1/models/%74iny", "/v1/models/tiny%2fversions%2f1", "/v1/models/../models/tiny",
    "/v1/./models/tiny", "//v1/models/tiny", "/v1//models/tiny", "/v1/models/tiny/", "/v1/models/",
    "http://127.0.0.1/v1/models/tiny", "http://evil.example/v1/models/tiny", "http://[::1",
    "/v1/models/tiny?x=y", "/v1/models/tiny#x", "*", "?", "", "/v1/models/tiny%", "/v1/models/%zz",
    "/v1/models/t\u00efny", "/v1/models/%ff%fe", "/v1/models/tiny/versions/-1",
    "/v1/models/%0d%0a",
    "/v1/models/tiny/versions/99999999999999999999", "/v1/models/tiny/versions/1e3", "/../../etc",
    "/v1/models/tiny/versions/\u0661", "/v1/models/tiny/labels/%2e%2e",
    "/v1/models/" + "x" * 60_000, "/v1/models/" + "%25" * 3000, "/" + "x" * 70_000,
    "/v1/models/tiny/versions/" + "0" * 3000 + "1",
]  # fmt: skip


def _paths(rng):
    path = rng.choice(PATHS).encode()
    if rng.random() < 0.3:
        path = damaged(rng, path).translate(None, b"\r\n")
    if rng.random() < 0.3:
        path += rng.choice(
            [b":predict", b":classify", b":regress", b":Predict", b":", b":predict:x"]
        )
    method, close = rng.choice([b"GET", b"POST", b"HEAD"]), b"Connection: close"
    said = request(method + b" " + path + b" HTTP/1.1", [LENGTH, close])
    methods = (method.decode(),)
    return Head(said, ANY - {403, 408}, most=1, end="shut", methods=methods)


def _pipelined(rng):
    count, bad = rng.randrange(2, 7), rng.random() < 0.4
    parts = [rng.choice([request(), request(GET + b" HTTP/1.1", (), b"")]) for _ in range(count)]
    if not bad:
        return Head(b"".join(parts), frozenset({200}), count, count)
    # Behind the one that nobody can read, nothing is answered.
    parts += [request(headers=[b"Content-Length: x"]), request(), request()]
    return Head(b"".join(parts), frozenset({200, 400}), count + 1, count + 1)


def _cut(rng):
    said = rng.choice([request(), request(headers=[CHUNKED], body=_chunked(rng))])
    said = said[: rng.randrange(len(said))]
    return Head(said, frozenset({400, 501}), end=rng.choice(["shut", "shut", "gone", "reset"]))


def _damaged(rng):
    said = damaged(rng, rng.choice([request(), request(headers=[CHUNKED], body=_chunked(rng))]))
    return Head(said, most=6)


def _random(rng):
    return Head(rng.randbytes(rng.choice([1, 10, 100, 5000, 200_000])), most=1)


HEADS = [
    _good, _methods, _versions, _lengths, _chunks, _bad_chunks, _lines, _hosts, _paths, _paths,
    _pipelined, _cut, _damaged, _damaged, _random,
]  # fmt: skip


def heads(count, seed=5):
    """That many cases of all kinds in turn."""
    rng = random.Random(seed)
    for number in range(count):
        yield HEADS[number % len(HEADS)](rng)


def drips():
    """(what it is, the bytes that come at once, those that drip) of requests that never end."""
    for number in range(8):
        yield f"a line {number}", b"", b"GET /" + b"x" * 10_000
        yield f"a head {number}", POST + b" HTTP/1.1\r\n", b"X: y\r\n" * 1000
        yield f"a body {number}", request(headers=[b"Content-Length: 9999"], body=b""), b" " * 9999
        yield f"chunks {number}", request(headers=[CHUNKED], body=b""), b"1\r\n \r\n" * 999


# Messages of gRPC.

NAMES = ["", "text", "texts", "é", "\0", "x" * 3000, "a\nb", "{}", "%s", "serving_default"]
SIZES = [0, 1, 1, 2, 3, 40, -1, -5, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]


def change_tensor(rng, proto):
    """Changes some of what a TensorProto says."""
    for _ in range(rng.randint(1, 3)):
        match rng.randrange(6):
            case 0:
                proto.dtype = rng.choice([*range(32), 101, 107, 120, 999, -1])
            case 1:
                del proto.tensor_shape.dim[:]
                for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 32, 33, 300])):
                    proto.tensor_shape.dim.add(size=rng.choice(SIZES))
            case 2:
                proto.tensor_shape.unknown_rank = rng.random() < 0.7
            case 3:
                del proto.string_val[:]
                texts = [b"", b"a", b"\xff\xfe", b"\0" * 9, b"house " * 4000]
                proto.string_val.extend(rng.choices(texts, k=rng.randrange(6)))
            case 4:
                proto.tensor_content = rng.randbytes(rng.choice([0, 1, 4, 8, 100]))
            case _:
                fields = {
                    "int_val": [1, -1],
                    "float_val": [float("nan"), 1e30],
                    "bool_val": [True],
                    "half_val": [2**31 - 1],
                    "int64_val": [-(2**63)],
                    "dcomplex_val": [1.0],
                }
                field = rng.choice([*fields])
                getattr(proto, field).extend(fields[field] * rng.randrange(3))


def _spec(rng, spec):
    match rng.randrange(5):
        case 0:
            spec.name = rng.choice(NAMES)
        case 1:
            spec.version.value = rng.choice(SIZES)
        case 2:
            spec.version_label = rng.choice(NAMES)
        case 3:
            spec.signature_name = rng.choice(NAMES)
        case _:
            spec.Clear()


def _predict(rng):
    texts = ["a little house", "", "by the lake"]
    message = rng.choice([
        make_request("tiny", texts),
        make_request("tiny", texts, "sample", seed=1, temperature=0.5, top_p=0.9),
        make_request("tiny", signature="score", source=texts, target=texts),
    ])  # fmt: skip
    match rng.randrange(8):
        case 0:
            _spec(rng, message.model_spec)
        case 1:
            message.inputs[rng.choice(NAMES)].CopyFrom(message.inputs[sorted(message.inputs)[0]])
        case 2:
            del message.inputs[rng.choice(sorted(message.inputs))]
        case 3:
            outputs = [*NAMES, "translation", "score", "truncated"]
            message.output_filter.extend(rng.choices(outputs, k=rng.randint(1, 4)))
        case _:
            change_tensor(rng, message.inputs[rng.choice(sorted(message.inputs))])
    return PREDICTION + "Predict", message.SerializeToString(), None


def _bytes(rng):
    """Of a message, damaged, doubled or with a field that it does not have; or of none."""
    method, data, _ = rng.choice([_predict, _metadata, _status])(rng)
    match rng.randrange(5):
        case 0:
            data = rng.randbytes(rng.choice([1, 10, 1000, 100_000]))
        case 1:
            data += data
        case 2:
            data += bytes([0xBA, 6, 3]) + b"abc"  # field 103
        case _:
            data = damaged(rng, data)
    return method, data, None


def _metadata(rng):
    message = get_model_metadata_pb2.GetModelMetadataRequest()
    message.model_spec.name = "tiny"
    message.metadata_field.extend(rng.choices(["signature_def", *NAMES], k=rng.randrange(3)))
    if rng.random() < 0.5:
        _spec(rng, message.model_spec)
    return PREDICTION + "GetModelMetadata", message.SerializeToString(), None


def _status(rng):
    message = get_model_status_pb2.GetModelStatusRequest()
    message.model_spec.name = "tiny"
    _spec(rng, message.model_spec)
    return MODEL + "GetModelStatus", message.SerializeToString(), None


def _reload(rng):
    """A configuration of what there is not."""
    message = model_management_pb2.ReloadConfigRequest()
    for _ in range(rng.randrange(4)):
        message.config.model_config_list.config.add(
            name=rng.choice(NAMES),
            base_path=rng.choice(["", "/nowhere", "\0", "x" * 5000, "é"]),
            model_platform=rng.choice(["tensorflow", "", "other"]),
        )
    return MODEL + "HandleReloadConfigRequest", message.SerializeToString(), {"INVALID_ARGUMENT"}


def _method(rng):
    letters = "".join(rng.choices(string.ascii_letters + "._/", k=rng.choice([1, 20, 3000])))
    names = ["Classify", "Regress", "MultiInference", "predict", "", "Predict/", letters]
    method = rng.choice([PREDICTION + rng.choice(names), "/" + letters, "/a/b", "/"])
    # Some have a stub, which reads the bytes first.
    return method, rng.randbytes(rng.randrange(99)), {"UNIMPLEMENTED", "INTERNAL"}


PROTOS = [_predict, _predict, _predict, _bytes, _bytes, _metadata, _status, _reload, _method]


def protos(count, seed=11):
    """(method, bytes, the names of the statuses that it may have or None) of that many requests."""
    rng = random.Random(seed)
    for number in range(count):
        yield PROTOS[number % len(PROTOS)](rng)
