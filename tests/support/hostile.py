"""Servers that send invalid bytes, for tests of clients."""

import concurrent.futures
import contextlib
import io
import json
import socket
import ssl
import struct
import sys
import threading
import time

import grpc
import tensorflow as tf
from google.protobuf import any_pb2
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

from export import client

SERVICE = "/tensorflow.serving.PredictionService/"


def http(body, status="200 OK", headers=""):
    """An answer of HTTP as bytes."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\n{headers}\r\n".encode() + body


METADATA = http({"metadata": {"signature_def": {"signature_def": {}}}})


class Raw:
    """Answers each connection with the next of `answers`, bytes, and repeats the last one.

    Args:
        pause: seconds before each byte of the last answer; None sends it whole.
        reset: the last answer ends with a reset of the connection.
        certificate: for TLS.
    """

    def __init__(self, *answers, pause=None, reset=False, certificate=None):
        self.answers, self.pause, self.reset, self.asked = answers, pause, reset, 0
        self.tls, self.ended = None, threading.Event()
        if certificate:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate.file, certificate.key)
        self.socket = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:  # closed
                return
            with contextlib.suppress(OSError):
                self._answer(connection)

    def _answer(self, connection):
        connection = self.tls.wrap_socket(connection, server_side=True) if self.tls else connection
        with connection:
            got = b""
            while b"\r\n\r\n" not in got:
                got += connection.recv(65536)
            head, body = got.split(b"\r\n\r\n", 1)
            if b"Content-Length: " in head:
                rest = int(head.split(b"Content-Length: ")[1].split()[0]) - len(body)
                while rest > 0:
                    rest -= len(connection.recv(65536))
            last = self.asked >= len(self.answers) - 1
            answer = self.answers[min(self.asked, len(self.answers) - 1)]
            self.asked += 1
            if not last or self.pause is None:
                connection.sendall(answer)
            else:
                for n in range(len(answer)):
                    if self.ended.wait(self.pause):
                        return
                    connection.sendall(answer[n : n + 1])
            if last and self.reset:
                time.sleep(0.05)  # everything that was sent has arrived
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class _Bytes(grpc.GenericRpcHandler):
    """Answers methods with bytes, by their names, or aborts with the given error."""

    def __init__(self, answers):
        self.answers = answers

    def service(self, details):
        def answer(_, context):
            found = self.answers[details.method.removeprefix(SERVICE)]
            if isinstance(found, str):
                context.abort(grpc.StatusCode.INTERNAL, found)
            return found

        return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.contextmanager
def raw_grpc(predict, metadata=None):
    """The address of a gRPC server that answers with these bytes; a str is the text of an error."""
    answers = {"Predict": predict, "GetModelMetadata": metadata or described()}
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[_Bytes(answers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def described(signatures=None):
    """Metadata as bytes; by default of a model without signatures."""
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    packed = any_pb2.Any()
    packed.Pack(signatures or get_model_metadata_pb2.SignatureDefMap())
    response.metadata["signature_def"].CopyFrom(packed)
    return response.SerializeToString()


def predicted(**outputs):
    """An answer as bytes: {name: a TensorProto, or the value of one}."""
    response = predict_pb2.PredictResponse()
    for name, value in outputs.items():
        is_proto = isinstance(value, tensor_pb2.TensorProto)
        response.outputs[name].CopyFrom(value if is_proto else tf.make_tensor_proto(value))
    return response.SerializeToString()


def command(monkeypatch, capfdbinary, lines, *arguments):
    """(exit code, standard output, the lines of standard error) of the client's command."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    try:
        code = client.main(["--model", "tiny", "--retries", "0", *map(str, arguments)])
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    found = capfdbinary.readouterr()
    return code, found.out, found.err.decode().splitlines()
