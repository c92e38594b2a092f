"""For tests of a server: adding a version, requests, and waiting with a deadline."""

import contextlib
import json
import shutil
import time
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

from export.verification.warmup import WARMUP_FILE, read_warmup

SECONDS = 120
PREDICT = "/v1/models/tiny:predict"


def wait_until(condition, seconds=SECONDS):
    """The value of `condition()` as soon as it is true; AssertionError if that takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        time.sleep(0.02)
    return found


def add_version(model, base, version, warmup=True):
    """Adds a copy of a SavedModel to `base` by a rename, as an exporter does.

    Without `warmup` requests it loads faster.
    """
    beside = base / f"partial-{version}"
    shutil.copytree(model, beside)
    if not warmup:
        (beside / WARMUP_FILE).unlink()
    return beside.rename(base / str(version))


def make_request(model, text=None, signature="", **inputs):
    """A PredictRequest; numbers become int32 or float32."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    inputs = inputs if text is None else {"text": text, **inputs}
    for key, value in inputs.items():
        array = np.array(value)
        kind = {"f": np.float32, "i": np.int32}.get(array.dtype.kind)
        array = array.astype(kind) if kind else np.array(value, object)
        request.inputs[key].CopyFrom(tf.make_tensor_proto(array, shape=array.shape))
    return request


@contextlib.contextmanager
def refused(code, match=""):
    """Checks that a request in this context gets this status, with details that contain `match`."""
    with pytest.raises(grpc.RpcError) as error:
        yield
    assert error.value.code().name == code, error.value
    assert match in error.value.details()


def predict_spec(name="tiny"):
    """The ModelSpec of a request."""
    return make_request(name).model_spec


def flip(path, at=None):
    """Damages a byte of a file, by default in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0xFF
    path.write_bytes(data)


def flip_weights(model):
    """Damages a byte of a SavedModel's weights."""
    [shard] = (model / "variables").glob("variables.data-*")
    flip(shard)


def failed(report):
    """{check: reason} of the failed checks of a `Report`."""
    return {check.name: check.detail for check in report.checks if not check.passed}


def write_log(model, signatures):
    """Warm-up requests with one text for these signatures."""
    requests = read_warmup(model)
    with tf.io.TFRecordWriter(str(model / WARMUP_FILE)) as writer:
        for name in signatures:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.CopyFrom(requests[0])
            log.predict_log.request.model_spec.signature_name = name
            writer.write(log.SerializeToString())


class Asked:
    """A `LocalServer` and clients for it.

    `predict(request)` uses gRPC, `ask(path, body)` REST.
    """

    def __init__(self, server):
        self.server = server
        self.url = f"http://127.0.0.1:{server.rest_port}"
        self.channel = grpc.insecure_channel(
            f"127.0.0.1:{server.port}", options=[("grpc.max_receive_message_length", -1)]
        )
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.service = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def predict(self, request, timeout=SECONDS):
        """{output: array}."""
        response = self.prediction.Predict(request, timeout=timeout)
        return {key: tf.make_ndarray(proto) for key, proto in response.outputs.items()}

    def translate(self, *texts, model="tiny"):
        found = self.predict(make_request(model, list(texts)))
        return [text.decode() for text in found["translation"]]

    def served_version(self, model="tiny"):
        """The number of the version that answers if none is named."""
        response = self.prediction.Predict(make_request(model, ["a"]), timeout=SECONDS)
        return response.model_spec.version.value

    def ask(self, path, body=None, method=None):
        """(status, JSON)."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def states(self, model="tiny"):
        """{version: (state, code, message)}, as the server returns it by gRPC."""
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = model
        found = self.service.GetModelStatus(request, timeout=SECONDS).model_version_status
        return {
            version.version: (
                get_model_status_pb2.ModelVersionStatus.State.Name(version.state),
                version.status.error_code,
                version.status.error_message,
            )
            for version in found
        }

    def close(self):
        self.channel.close()
