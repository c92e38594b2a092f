"""Malicious clients get a status in time, and the next request is answered."""

import gzip
import json
import os
import random
import re
import signal
import socket
import threading
import time

import grpc
import pytest
import tensorflow as tf
from serving import PREDICT, Asked, make_request, predict_spec, refused, wait_until

from export.capi.library import ServingError
from export.local_server import LocalServer
from export.serving import connection, rest, tensors, worker
from export.serving.deadline import Deadline
from export.serving.versions import one_model
from export.verification.graph import Signature, TensorInfo

GOOD = b'{"instances": ["a house"]}'
POST = b"POST /v1/models/tiny:predict HTTP/1.1\r\n"


def talk(port, said, seconds=20):
    """All bytes that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        answer = bytearray()
        while piece := client.recv(65536):
            answer += piece
    return bytes(answer)


def statuses(answer):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


def claim(sizes, values=(b"a",), dtype=tf.string, name="text"):
    """A request whose tensor has this shape and these values."""
    request = make_request("tiny", **{name: ["a"]})
    proto = request.inputs[name]
    proto.Clear()
    proto.dtype = getattr(dtype, "as_datatype_enum", dtype)
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    (proto.string_val if dtype == tf.string else proto.int_val).extend(values)
    return request


def damaged(rng, data):
    """Bytes with some changed, doubled, cut out or cut off."""
    at, size = rng.randrange(len(data)), rng.randrange(1, 20)
    return rng.choice([
        data[:at] + rng.randbytes(size) + data[at + size :],
        data[:at] + data[at : at + size] + data[at:],
        data[:at] + data[at + size :],
        data[:at],
    ])  # fmt: skip


@pytest.mark.slow
def test_damaged_requests_have_a_status_and_the_next_one_is_served(asked):
    rng, expected = random.Random(7), asked.translate("a house")
    message = make_request("tiny", ["a house"]).SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{asked.server.port}") as channel:
        predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        for number in range(300):
            status, _ = asked.ask(PREDICT, damaged(rng, GOOD))
            assert status in (200, 400), number
            try:
                predict(damaged(rng, message), timeout=20)
            except grpc.RpcError as error:
                # gRPC returns INTERNAL for bytes that are not a message.
                codes = "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "INTERNAL"
                assert error.code().name in codes and "Traceback" not in error.details()
    assert asked.translate("a house") == expected


# Shapes and types that a tensor claims to have.


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (claim([5_000_000]), "tensor parsing error: text: at most 100,000 rows, got 5,000,000"),
        (claim([3, 2**40]), "text: at most 1,000,000 elements, got the shape [3, 1099511627776]"),
        (
            claim([0, 2**62], []),
            "text: at most 1,000,000 elements, got the shape [0, 4611686018427",
        ),
        (claim([0, 2**62, 2**62], []), "text: at most 1,000,000 elements, got the shape [0, 4611"),
        (claim([3, 2**62, 2**62]), "text: at most 1,000,000 elements, got the shape [3, 46116860"),
        (claim([0, -1], []), "tensor parsing error: text: its shape is not known"),
        (claim([-(2**63)]), "tensor parsing error: text: its shape is not known"),
        (claim([2], [b"a", b"b", b"c"]), "text: at most 2 values for its shape [2], got 3"),
        (claim([], [b"a", b"b"]), "text: at most 1 values for its shape [], got 2"),
        (claim([0, 5]), "text: at most 0 values for its shape [0, 5], got 1"),
        (claim([1] * 33), "tensor parsing error: text: at most 32 dimensions, got 33"),
        (claim([-1]), "tensor parsing error: text: its shape is not known"),
        (claim([2, -1]), "tensor parsing error: text: its shape is not known"),
        (claim([1], [5], tf.int32), "to be string but int32 is provided"),
        (claim([1], [5], tf.resource), "to be string but resource is provided"),
        (claim([1], [5], 0), "tensor parsing error: text: there is no type 0"),
        (claim([1], [5], 999), "tensor parsing error: text: there is no type 999"),
    ],
)
def test_tensor_of_a_wrong_shape_or_type_is_refused(asked, request_, match):
    assert len(request_.SerializeToString()) < 512
    with refused("INVALID_ARGUMENT", match):
        asked.predict(request_, timeout=20)


def test_tensor_without_values_is_filled_with_the_type_default(asked):
    """The server's `FromProtoField` fills the tensor with T()."""
    found = asked.predict(claim([2], []))
    assert found["translation"].tolist() == [b"", b""]
    other = claim([2], [])
    other.inputs["text"].bool_val.append(True)  # of another type
    assert asked.predict(other)["translation"].tolist() == [b"", b""]
    number = claim([2], [], tf.int32).inputs["text"]
    array = tensors.to_array("x", TensorInfo("x:0", "int32", None), number, 5)
    assert array.dtype == "int32" and array.tolist() == [0, 0]


def test_numbers_must_fit_their_shape():
    request = claim([2], [1], tf.int32).inputs["text"]
    info = TensorInfo("x:0", "int32", None)
    assert tensors.to_array("x", info, request, 5).tolist() == [1, 1]
    request.tensor_content = b"12345"
    with pytest.raises(ServingError, match=r"^INVALID_ARGUMENT: .* x: its values do not fit .*2]"):
        tensors.to_array("x", info, request, 5)
    request.dtype = tf.complex64.as_datatype_enum
    with pytest.raises(ServingError, match="^INVALID_ARGUMENT: .* x: complex64 is not served"):
        tensors.to_array("x", TensorInfo("x:0", "complex64", None), request, 5)


@pytest.mark.parametrize("compression", grpc.Compression)
def test_grpc_message_over_the_maximum_size_is_refused(asked, compression):
    """The limit counts unpacked bytes: 70 MB of one letter are 70 kB in gzip."""
    with refused("RESOURCE_EXHAUSTED", "essage larger than max"):
        asked.prediction.Predict(
            make_request("tiny", [b"a" * 70_000_000]), timeout=20, compression=compression
        )
    found = asked.prediction.Predict(
        make_request("tiny", ["a house"]), timeout=20, compression=compression
    )
    assert found.outputs["translation"].string_val


def test_requests_over_max_rows_are_refused(asked, monkeypatch):
    model = asked.server.versions.model(predict_spec())
    assert model.max_rows == tensors.MAX_ROWS  # it has no report
    monkeypatch.setattr(model, "max_rows", 2)
    assert asked.translate("a", "b")
    with refused("INVALID_ARGUMENT", "text: at most 2 rows, got 3"):
        asked.translate("a", "b", "c")
    for body in ({"instances": ["a"] * 3}, {"inputs": ["a"] * 3}, {"inputs": {"text": ["a"] * 3}}):
        status, found = asked.ask(PREDICT, body)
        assert status == 400 and "at most 2 rows, got 3" in found["error"]


def test_long_error_messages_are_truncated(asked):
    request = make_request("tiny", ["a"], "x" * 3000)
    with pytest.raises(grpc.RpcError) as error:
        asked.predict(request)
    details = error.value.details()
    assert details.endswith("...TRUNCATED") and len(details) == 1024 + len("...TRUNCATED")
    status, found = asked.ask(f"/v1/{'x' * 3000}")
    assert status == 400 and found["error"].endswith("x...TRUNCATED")


# Bodies and clients.


@pytest.mark.parametrize(
    ("head", "body", "expected"),
    [
        (b"Content-Length: 26", GOOD, [200]),
        (b"Transfer-Encoding: chunked", b"1a;x=1\r\n" + GOOD + b"\r\n0\r\nX: y\r\n\r\n", [200]),
        (b"Transfer-Encoding: chunked", b"5\r\n" + GOOD + b"\r\n0\r\n\r\n", [400]),
        (b"Transfer-Encoding: chunked", b"-1\r\n\r\n", [400]),
        (b"Transfer-Encoding: chunked", b"fffffffffff\r\n", [413]),
        (b"Transfer-Encoding: gzip", GOOD, [501]),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 26", GOOD, [400]),
        (b"Content-Length: 26\r\nContent-Length: 5", GOOD, [400]),
        (b"Content-Length : 26", GOOD, [400]),
        (b"Content-Length: -1", GOOD, [400]),
        (b"Content-Length: +26", GOOD, [400]),
        (b"Content-Length: ", GOOD, [400]),
        (b"Content-Length: " + b"9" * 5000, GOOD, [413]),
        (b"Host: evil.example\r\nContent-Length: 26", GOOD, [403]),
        (b"Host: localhost.evil.example:8501\r\nContent-Length: 26", GOOD, [403]),
        (b"Host: localhost\r\nHost: evil.example\r\nContent-Length: 26", GOOD, [403]),
        (b"Host: LocalHost.:8501\r\nContent-Length: 26", GOOD, [200]),
        (b"Host: [::1]:8501\r\nContent-Length: 26", GOOD, [200]),
        (b"X: " + b"y" * 70_000, GOOD, [431]),
    ],
)
def test_second_request_is_served_only_if_the_first_body_is_complete(
    asked, monkeypatch, head, body, expected
):
    """After an answer of 200, a second request on the connection is served; otherwise it is not
    read."""
    monkeypatch.setattr(connection, "LINGER", 0.1)
    second = b"GET /v1/models/tiny HTTP/1.1\r\nConnection: close\r\n\r\n"
    answer = talk(asked.server.rest_port, POST + head + b"\r\n\r\n" + body + second)
    assert statuses(answer) == expected + [200] * (expected == [200])
    assert b"Traceback" not in answer and b"<html" not in answer.lower()


PACKED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize(
    ("body", "status", "match"),
    [
        (PACKED, 200, b'"predictions"'),
        (
            gzip.compress(GOOD[:9], mtime=0) + gzip.compress(GOOD[9:], mtime=0),
            200,
            b'"predictions"',
        ),
        (GOOD, 400, b"the body must be whole gzip: Not a gzipped file"),
        (PACKED[:-9], 400, b"the body must be whole gzip: Compressed file ended before"),
        (PACKED[:-8] + b"1234" + PACKED[-4:], 400, b"whole gzip: CRC check failed"),
        (PACKED[:12] + b"\xff\xff" + PACKED[14:], 400, b"the body must be whole gzip: "),
        (PACKED + b"x", 400, b"the body must be whole gzip: Not a gzipped file"),
        (gzip.compress(b"", mtime=0), 400, b"The document is empty"),
        (
            gzip.compress(bytes(2**26 + 1), mtime=0),
            413,
            b"at most 67,108,864 bytes, got more from gzip",
        ),
    ],
)
def test_gzip_body_is_unpacked_or_refused(asked, monkeypatch, body, status, match):
    """The stock server unpacks it. The last body is a bomb: 65 kB that unpack to 64 MiB and a
    byte."""
    monkeypatch.setattr(connection, "LINGER", 0.1)
    head = b"Content-Encoding: GZip\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    start = time.monotonic()
    answer = talk(asked.server.rest_port, POST + head + body)
    assert statuses(answer) == [status] and match in answer
    assert time.monotonic() - start < 10
    chunk = (
        b"Transfer-Encoding: chunked\r\nConnection: close\r\nContent-Encoding: gzip\r\n\r\n%x\r\n"
    )
    answer = talk(asked.server.rest_port, POST + chunk % len(body) + body + b"\r\n0\r\n\r\n")
    assert statuses(answer) == [status] and match in answer


def test_body_of_a_get_is_not_read_as_a_request(asked):
    inner = b"GET /v1/models/none HTTP/1.1\r\n\r\n"
    length = b"Content-Length: %d\r\n\r\n" % len(inner)
    for path, status in ((b"/v1/models/tiny", 200), (b"/other", 404), (b"/v1/x", 400)):
        get = b"GET " + path + b" HTTP/1.1\r\n" + length + inner
        answer = talk(asked.server.rest_port, get + get)
        assert statuses(answer) == [status, status]


# The clock.


def test_rest_timeout_starts_with_the_first_byte_of_the_request(asked, monkeypatch):
    handler = asked.server._http.RequestHandlerClass
    monkeypatch.setattr(handler, "seconds", 0.5)
    monkeypatch.setattr(connection, "LINGER", 0.1)
    port = asked.server.rest_port
    for begun, expected in ((POST + b"Content-Length: 100\r\n\r\n{", [408]), (POST, [])):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(begun)
            assert statuses(client.recv(65536)) == expected
    monkeypatch.setattr(handler, "seconds", 1e-6)
    status, found = asked.ask(PREDICT, b'{"instances": ["a"]}')
    assert (status, "Timeout exceeded" in str(found)) in ((504, True), (408, False))
    monkeypatch.undo()
    assert asked.ask(PREDICT, GOOD)[0] == 200


def test_rows_are_not_read_after_the_deadline():
    signature = Signature({"x": TensorInfo("x:0", "float32", None)}, {}, {})
    for body in ({"instances": [1.0]}, {"inputs": [1.0]}):
        text = json.dumps(body).encode()
        request, _ = rest.parse(text, lambda name: (signature, 5), Deadline(60))
        assert tf.make_ndarray(request.inputs["x"]).tolist() == [1.0]
        with pytest.raises(ServingError, match="DEADLINE_EXCEEDED"):
            rest.parse(text, lambda name: (signature, 5), Deadline(-1))


@pytest.mark.slow
def test_requests_to_a_stopped_worker_time_out_and_it_is_replaced(short, monkeypatch):
    monkeypatch.setattr(worker, "GRACE", 0.1)
    with LocalServer(one_model("tiny", short.parent), rest_timeout=0.5) as server:
        asked = Asked(server)
        assert asked.translate("a house")
        model = server.versions.model(predict_spec())
        os.kill(model.worker.pid, signal.SIGSTOP)
        assert asked.ask(PREDICT, GOOD)[0] == 504
        with pytest.raises(ServingError, match="DEADLINE_EXCEEDED"):
            model.predict(make_request("tiny", ["a"]), timeout=0.2)
        # No call delays the others, not even one larger than the pipe's buffer.
        large = make_request("tiny", [b"a" * 2**22])
        with pytest.raises(ServingError, match="DEADLINE_EXCEEDED"):
            model.predict(large, timeout=0.2)
        with pytest.raises(ServingError, match="DEADLINE_EXCEEDED"):
            model.predict(make_request("tiny", ["a"]), timeout=0.2)
        endless = []

        def ask():  # without a deadline: it waits until the process is ended
            try:
                model.predict(make_request("tiny", ["a"]))
            except ServingError as error:
                endless.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        monkeypatch.setattr(worker, "STANDSTILL", 1)
        thread.join(60)
        assert endless[0].code_name == "UNAVAILABLE" and "stood still" in endless[0].message
        wait_until(lambda: server.versions.model(predict_spec()).worker.pid != model.worker.pid)
        assert asked.translate("a house")
        asked.close()
