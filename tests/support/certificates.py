"""Certificates that a test makes itself, and a gRPC server that uses them."""

import concurrent.futures
import contextlib
import shutil
import subprocess

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)


class Certificate:
    """A self-signed certificate for these names.

    Attributes:
        file, key: its paths.
    """

    def __init__(self, folder, names):
        if not shutil.which("openssl"):
            pytest.skip("there is no openssl, which makes the certificates")
        folder.mkdir()
        self.file, self.key = folder / "certificate.pem", folder / "key.pem"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        subject = ["-subj", "/CN=test", "-addext", f"subjectAltName={names}", "-days", "2"]
        files = ["-keyout", str(self.key), "-out", str(self.file)]
        subprocess.run(
            ["openssl", "req", "-x509", *curve, *subject, *files], check=True, capture_output=True
        )


class Secured(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers `Haus` to clients with the token, and keeps the header of each request."""

    def __init__(self, token, unavailable=0):
        self.token, self.unavailable, self.headers = token, unavailable, []

    def _admit(self, context):
        header = dict(context.invocation_metadata()).get("authorization")
        self.headers.append(header)
        if header != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, f"refused: {header}")
        if self.unavailable:
            self.unavailable -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the queue is full")

    def GetModelMetadata(self, request, context):
        self._admit(context)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata["signature_def"].Pack(get_model_metadata_pb2.SignatureDefMap())
        return response

    def Predict(self, request, context):
        self._admit(context)
        response = predict_pb2.PredictResponse()
        response.outputs["translation"].CopyFrom(tf.make_tensor_proto(["Haus"]))
        return response


@contextlib.contextmanager
def grpc_server(certificate, servicer):
    """The address of a gRPC server with TLS, whose calls `servicer` answers."""
    pair = certificate.key.read_bytes(), certificate.file.read_bytes()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, server)
    server.start()
    try:
        yield f"grpcs://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()
