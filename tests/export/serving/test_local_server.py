"""The local server answers as the real one: values, statuses, versions that come and go."""

import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from google.protobuf import text_format
from paths import ROOT
from serving import SECONDS, Asked, add_version, make_request, wait_until
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    predict_pb2,
    prediction_log_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from export import local_server
from export.capi.library import CODES
from export.examples import sample_requests
from export.local_server import LocalServer
from export.serving.versions import Versions, one_model, read_config
from export.verification.compare import answer
from export.verification.graph import UsageError, read_graph
from export.verification.warmup import WARMUP_FILE, read_warmup, write_warmup

PREDICT = "/v1/models/tiny:predict"


@pytest.fixture(scope="module")
def asked(served_model):
    """A server of version 1 under two names, one of them with labels."""
    config = one_model("tiny", served_model)
    config.model_config_list.config.add().CopyFrom(config.model_config_list.config[0])
    labelled = config.model_config_list.config[1]
    labelled.name = "labelled model"
    labelled.model_version_policy.specific.versions.extend([1, 5])
    labelled.version_labels["stable"] = 1
    labelled.version_labels["next"] = 5
    with LocalServer(config) as server:
        asked = Asked(server)
        yield asked
        asked.close()


@contextlib.contextmanager
def refused(code, match=""):
    with pytest.raises(grpc.RpcError) as error:
        yield
    assert error.value.code().name == code, error.value
    assert match in error.value.details()


# What is right.


def test_every_signature_answers_as_the_translator_by_grpc_and_by_rest(asked, translator_served):
    defaults = read_graph(asked.server.versions._wanted(asked.server.versions._config["tiny"])[1])
    for name, requests in sample_requests(translator_served).items():
        for request in requests:
            expected = answer(translator_served, name, request)
            inputs = {
                k: np.array(v).tolist() if k == "source_ids" else v for k, v in request.items()
            }
            found = asked.predict(make_request("tiny", signature=name, **inputs))
            signature = defaults.signatures[name]
            given = {key: value.tolist() for key, value in signature.defaults.items()}
            body = {"signature_name": name, "inputs": {**given, **inputs}}
            status, by_rest = asked.ask(PREDICT, body)
            assert status == 200, by_rest
            by_rest = by_rest["outputs"]
            assert sorted(found) == sorted(by_rest) == sorted(expected)
            for key, value in expected.items():
                if value.dtype == object:
                    assert found[key].tolist() == value.tolist()
                    texts = np.array(by_rest[key], object).reshape(value.shape).ravel().tolist()
                    assert texts == [text.decode() for text in value.ravel()]
                else:
                    np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-4)
                    assert found[key].dtype == value.dtype and found[key].shape == value.shape
                    np.testing.assert_allclose(
                        np.array(by_rest[key], value.dtype).reshape(value.shape),
                        found[key],
                        rtol=1e-6,
                    )


def test_defaults_are_filled_in_for_grpc_and_not_for_rest(asked):
    whole = {"beam_width": 4, "length_penalty": 0.6, "max_length": 0, "min_length": 0}
    whole |= {"max_length_factor": 0.0, "coverage_penalty": 0.0, "repetition_penalty": 1.0}
    whole |= {"no_repeat_ngram": 0}
    by_default = asked.predict(make_request("tiny", ["a house"], "beam_search"))
    given = asked.predict(make_request("tiny", ["a house"], "beam_search", **whole))
    assert by_default["translations"].tolist() == given["translations"].tolist()
    narrow = asked.predict(make_request("tiny", ["a house"], "beam_search", beam_width=1))
    assert by_default["translations"].shape == (1, 4) and narrow["translations"].shape == (1, 1)
    body = {"signature_name": "beam_search", "inputs": {"text": ["a house"], "beam_width": 1}}
    status, found = asked.ask(PREDICT, body)
    assert status == 400 and found["error"].startswith("Missing named input: ")
    body = {"signature_name": "beam_search", "instances": [{"text": "a house"}]}
    status, found = asked.ask(PREDICT, body)
    assert status == 400 and "keys must be equal to: beam_width,coverage_penalty" in found["error"]


def test_instances_and_inputs(asked, translator_served):
    texts = ["a house", "the lake"]
    expected = translator_served.translate(texts)
    for body in (
        {"instances": texts},
        {"instances": [{"text": text} for text in texts]},
        {"instances": [{"b64": "YSBob3VzZQ=="}, "the lake"]},
        {"instances": [{"text": {"b64": "YSBob3VzZQ=="}}, {"text": "the lake"}]},
        {"instances": texts, "signature_name": ""},
    ):
        status, found = asked.ask(PREDICT, body)
        assert status == 200
        assert [row["translation"] for row in found["predictions"]] == expected
        assert set(found["predictions"][0]) == {"translation", "score", "truncated"}
    for body in (
        {"inputs": texts},
        {"inputs": {"text": texts}},
        {"inputs": {"text": texts, "x": 1}},
    ):
        status, found = asked.ask(PREDICT, body)
        assert status == 200
        assert found["outputs"]["translation"] == expected
    pair = {"text": "a house", "prefix": "the"}
    status, found = asked.ask(PREDICT, {"signature_name": "complete", "instances": [pair]})
    assert status == 200 and found["predictions"][0]["translation"].startswith("the")


def test_bytes_in_json_that_are_no_utf8_reach_the_model(asked, translator_served):
    expected = translator_served.functions["serving_default"](tf.constant([b"a \xff house"]))
    status, found = asked.ask(PREDICT, b'{"instances": ["a \xff house"]}')
    assert status == 200
    assert found["predictions"][0]["translation"] == expected["translation"].numpy()[0].decode()


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"", "JSON Parse error: The document is empty"),
        (b"{", "JSON Parse error: "),
        (b"[1]", "Is not object"),
        (b'{"instances": ["\\ud800"]}', "The surrogate pair in string is invalid"),
        (b"[" * 100_000, "JSON Parse error: "),
        ({"signature_name": 5, "instances": ["a"]}, "'signature_name' key must be a string value"),
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"inputs": ["a"], "instances": ["a"]}, "expecting only one of"),
        ({"instances": "a"}, "Excepting 'instances' to be an list/array"),
        ({"instances": []}, "No values in 'instances' array"),
        ({"instances": [{"text": "a", "x": 1}]}, "does not have named input: x"),
        ({"instances": [{"text": "a"}, "b"]}, "Expecting object but got list at item 1"),
        ({"instances": ["a", {"text": "b"}]}, "Expecting value/list but got object at item 1"),
        ({"instances": ["a", ["b"]]}, "Expecting shape [] but got: [1]"),
        ({"instances": [["a", ["b"]]]}, "Encountered list at unexpected level: 1 expected < 1"),
        ({"instances": [5]}, "JSON Value: 5 Type: Number is not of expected type: string"),
        ({"instances": [None]}, "Type: Null is not of expected type: string"),
        ({"instances": [{"b64": "!"}]}, "Unable to base64 decode"),
        ({"inputs": {"texts": ["a"]}}, "Missing named input: text in 'inputs' object."),
        ({"inputs": [["a"], ["b", "c"]]}, "Encountered list at unexpected size: 2 at level: 1"),
        ({"signature_name": "score", "inputs": ["a"]}, "inputs is a plain value/list"),
        ({"signature_name": "score", "instances": ["a"]}, "instances is a plain list"),
        (
            {"signature_name": "none", "instances": ["a"]},
            'Serving signature name: "none" not found in signature def',
        ),
    ],
)
def test_json_that_is_wrong_is_400_and_says_why(asked, body, match):
    status, found = asked.ask(PREDICT, body)
    assert status == 400 and match in found["error"]


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("beam_width", 4.0, "JSON Value: 4.0 Type: Number is not of expected type: int32"),
        ("beam_width", True, "Type: True is not of expected type: int32"),
        ("beam_width", 2**31, "is not of expected type: int32"),
        ("length_penalty", "1", "Type: String is not of expected type: float"),
        ("length_penalty", 1e39, "to float without loss of precision"),
        ("length_penalty", 2**24, "Cannot convert JSON value: 16777216 to float without loss"),
    ],
)
def test_json_numbers_are_of_the_type_of_the_input(asked, name, value, match):
    defaults = read_graph(asked.server.versions.model(predict_spec()).directory).signatures
    inputs = {key: array.tolist() for key, array in defaults["beam_search"].defaults.items()}
    inputs |= {"text": ["a"], name: value}
    status, found = asked.ask(PREDICT, {"signature_name": "beam_search", "inputs": inputs})
    assert status == 400 and match in found["error"]


def predict_spec(name="tiny"):
    return make_request(name).model_spec


# What the model is.


def test_status(asked):
    version = {"version": "1", "state": "AVAILABLE"}
    version["status"] = {"error_code": "OK", "error_message": ""}
    for path in ("/v1/models/tiny", "/v1/models/tiny/versions/1", "/V1/Models/tiny?x=1"):
        assert asked.ask(path) == (200, {"model_version_status": [version]})
    assert asked.states() == {1: ("AVAILABLE", 0, "")}
    assert asked.states("labelled model") == {1: ("AVAILABLE", 0, "")}


def test_metadata(asked):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "tiny"
    response = asked.prediction.GetModelMetadata(request, timeout=SECONDS)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert response.model_spec.version.value == 1
    width = tf.make_ndarray(signatures.signature_def["beam_search"].defaults["beam_width"])
    assert width == 4
    status, found = asked.ask("/v1/models/tiny/versions/1/metadata")
    assert status == 200
    assert found["model_spec"] == {"name": "tiny", "signature_name": "", "version": "1"}
    assert set(found["metadata"]["signature_def"]) == {"signature_def"}
    by_rest = found["metadata"]["signature_def"]["signature_def"]
    assert set(by_rest) == set(signatures.signature_def)
    text = by_rest["serving_default"]["inputs"]["text"]
    assert text["dtype"] == "DT_STRING" and text["tensor_shape"]["dim"][0]["size"] == "-1"
    for fields, match in (([], "at least one metadata_field"), (["x"], "is not supported")):
        del request.metadata_field[:]
        request.metadata_field.extend(fields)
        with refused("INVALID_ARGUMENT", match):
            asked.prediction.GetModelMetadata(request, timeout=SECONDS)


def test_versions_and_labels(asked, translator_served):
    body, expected = {"instances": ["a house"]}, translator_served.translate(["a house"])[0]
    for path in (
        "/v1/models/tiny/versions/1:predict",
        "/v1/models/labelled%20model:predict",
        "/v1/models/labelled%20model/versions/1:predict",
        "/v1/models/labelled%20model/labels/stable:predict",
        "/v1/models/labelled%20model/labels/st%61ble:predict?verbose=1",
    ):
        status, found = asked.ask(path, body)
        assert status == 200, found
        assert found["predictions"][0]["translation"] == expected
    request = make_request("labelled model", ["a house"])
    request.model_spec.version_label = "stable"
    assert asked.predict(request)["translation"].tolist() == [expected.encode()]


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/v1/models/none:predict", 404, "Servable not found for request: Latest(none)"),
        ("/v1/models/tiny/versions/7:predict", 404,
         "Servable not found for request: Specific(tiny, 7)"),
        ("/v1/models/tiny/labels/stable:predict", 400,
         "Unrecognized servable version label: stable"),
        ("/v1/models/labelled%20model/labels/none:predict", 400,
         "Unrecognized servable version label: none"),
        ("/v1/models/labelled%20model/labels/next:predict", 404,
         "Servable not found for request: Specific(labelled model, 5)"),
        (f"/v1/models/tiny/versions/{2**63}:predict", 400,
         f"Failed to convert version: {2**63} to numeric."),
        ("/v1/models/tiny/versions/x:predict", 400,
         "Malformed request: POST /v1/models/tiny/versions/x:predict"),
        ("/v1/models/tiny", 400, "Malformed request: POST /v1/models/tiny"),
        ("/v1/models/tiny:translate", 400, "Malformed request: POST /v1/models/tiny:translate"),
        ("/v1/models/tiny:classify", 501, "only predict is served, got classify"),
        ("/v1/models/tiny:regress", 501, "only predict is served, got regress"),
        ("/v2/models/tiny:predict", 404, "Not Found"),
    ],
)  # fmt: skip
def test_what_there_is_not_to_post_to(asked, path, status, error):
    assert asked.ask(path, {"instances": ["a"]}) == (status, {"error": error})


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/v1/models/none", 404, "Could not find any versions of model none"),
        ("/v1/models/tiny/versions/7", 404, "Could not find version 7 of model tiny"),
        ("/v1/models", 400, "Missing model name in request."),
        ("/v1/models/none/metadata", 404, "Servable not found for request: Latest(none)"),
        (PREDICT, 400, f"Malformed request: GET {PREDICT}"),
        ("/v1/", 400, "Malformed request: GET /v1/"),
        ("/", 404, "Not Found"),
    ],
)
def test_what_there_is_not_to_get(asked, path, status, error):
    assert asked.ask(path) == (status, {"error": error})


def test_other_methods_are_malformed(asked):
    for method in ("PUT", "DELETE"):
        status, found = asked.ask(PREDICT, b"{}", method)
        assert (status, found) == (400, {"error": f"Malformed request: {method} {PREDICT}"})


def test_what_there_is_not_by_grpc(asked):
    with refused("NOT_FOUND", "Servable not found for request: Latest(none)"):
        asked.predict(make_request("none", ["a"]))
    with refused("FAILED_PRECONDITION", 'Serving signature key "none" not found.'):
        asked.predict(make_request("tiny", ["a"], "none"))
    with refused("INVALID_ARGUMENT", "Missing ModelSpec"):
        asked.predict(predict_pb2.PredictRequest())
    with refused("INVALID_ARGUMENT", "ModelSpec has no name specified."):
        asked.predict(make_request("", ["a"]))
    request = make_request("tiny", ["a"])
    request.model_spec.version.value = 7
    with refused("NOT_FOUND", "Servable not found for request: Specific(tiny, 7)"):
        asked.predict(request)
    request.model_spec.version_label = "none"
    with refused("INVALID_ARGUMENT", "Unrecognized servable version label: none"):
        asked.predict(request)
    with refused("NOT_FOUND", "Could not find any versions of model none"):
        asked.states("none")
    with refused("INVALID_ARGUMENT", "Missing ModelSpec"):
        asked.service.GetModelStatus(get_model_status_pb2.GetModelStatusRequest())
    with refused("UNIMPLEMENTED"):
        asked.prediction.Classify(classification_pb2.ClassificationRequest())


def test_a_tensor_that_does_not_parse(asked):
    request = make_request("tiny", ["a", "b"])
    request.inputs["text"].tensor_shape.dim[0].size = 1
    with refused("INVALID_ARGUMENT", "tensor parsing error: text"):
        asked.predict(request)
    request = make_request("tiny", signature="beam_search_ids", source_ids=[[5, 3]])
    request.inputs["source_ids"].tensor_content = b""
    request.inputs["source_ids"].int_val.append(5)
    request.inputs["source_ids"].tensor_shape.dim[0].size = 2**50  # more than any memory
    with refused("INVALID_ARGUMENT", "tensor parsing error: source_ids"):
        asked.predict(request)
    assert asked.translate("a")


def test_the_output_filter(asked):
    request = make_request("tiny", ["a house"])
    request.output_filter.extend(["score"])
    assert list(asked.predict(request)) == ["score"]
    request.output_filter.append("score")
    with refused("INVALID_ARGUMENT", "duplicate output tensor alias: score"):
        asked.predict(request)
    request.output_filter[1] = "none"
    with refused("INVALID_ARGUMENT", "output tensor alias not found in signature: none"):
        asked.predict(request)


def test_a_deadline_ends_the_request_and_the_next_is_served(asked):
    document = ". ".join([" ".join(text.capitalize() for text in tiny.sentences(40))] * 20)
    request = make_request("tiny", [document] * 37, "translate_document")
    with refused("DEADLINE_EXCEEDED"):
        asked.predict(request, timeout=0.05)
    assert asked.translate("a house")
    model = asked.server.versions.model(predict_spec())
    wait_until(lambda: not model._running)  # on the server too it was given up
    with contextlib.closing(Asked(asked.server)) as other:
        assert other.translate("a house") == asked.translate("a house")


def test_concurrent_requests_get_their_own_answers(asked, translator_served):
    texts = tiny.sentences(31)
    with concurrent.futures.ThreadPoolExecutor(31) as threads:
        found = list(threads.map(asked.translate, texts))
    assert [text for [text] in found] == translator_served.translate(texts)


def test_it_listens_on_the_loopback_address_alone(asked):
    for port in (asked.server.port, asked.server.rest_port):
        listening = {
            line.split()[1]
            for name in ("tcp", "tcp6")
            for line in Path("/proc/net", name).read_text().splitlines()[1:]
            if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
        }
        local = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, and in IPv6
        assert listening and {address.partition(":")[0] for address in listening} <= local


# Versions that come and go.


class KerasRoot(tf.Module):
    """Loads in Python, and its first request fails on a server."""

    def __init__(self):
        super().__init__()
        self.model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        spec = tf.TensorSpec([None, 3], tf.float32, "x")
        self.call = tf.function(lambda x: {"y": self.model(x)}, input_signature=[spec])


class Compiled(tf.Module):
    def __init__(self):
        super().__init__()
        self.weight = tf.Variable([2.0])
        compiled = tf.function(lambda x: x * self.weight, jit_compile=True)
        spec = tf.TensorSpec([None, 1], tf.float32, "x")
        self.call = tf.function(lambda x: {"y": compiled(x)}, input_signature=[spec])


def save_module(module, size, directory):
    tf.saved_model.save(module, str(directory), signatures={"serving_default": module.call})
    requests = {"serving_default": [{"x": [[1.0] * size]}]}
    write_warmup(directory, requests, {"serving_default": module.call})


def flip(path, at=None):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0xFF
    path.write_bytes(data)


def write_log(model, signatures):
    """Warm-up requests of one text for these signatures."""
    requests = read_warmup(model)
    with tf.io.TFRecordWriter(str(model / WARMUP_FILE)) as writer:
        for name in signatures:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.CopyFrom(requests[0])
            log.predict_log.request.model_spec.signature_name = name
            writer.write(log.SerializeToString())


def flip_weights(model):
    [shard] = (model / "variables").glob("variables.data-*")
    flip(shard)


BROKEN = {
    "no variables": (lambda model: shutil.rmtree(model / "variables"), "Could not find variable"),
    "a byte of the graph": (lambda model: flip(model / "saved_model.pb", 0), "saved_model.pb"),
    "a byte of the weights": (flip_weights, "DATA_LOSS"),
    "a warm-up request that fails": (
        lambda model: write_log(model, ["serving_default", "none"]),
        'warm-up request 1: .*"none" not found',
    ),
    "a byte of the warm-up": (lambda model: flip(model / WARMUP_FILE), "DATA_LOSS: .*warmup"),
    "no graph": (lambda model: (model / "saved_model.pb").unlink(), "saved_model.pb"),
}


@pytest.fixture(scope="module")
def short(served_model, tmp_path_factory):
    """The served model with one warm-up request, which a server is soon done with."""
    model = tmp_path_factory.mktemp("short") / "1"
    shutil.copytree(served_model / "1", model)
    write_log(model, ["serving_default"])
    return model


@pytest.fixture(scope="module")
def changing(short, tmp_path_factory):
    """A server of a base directory of its own, in which version 1 is."""
    base = tmp_path_factory.mktemp("changing") / "tiny"
    base.mkdir()
    shutil.copytree(short, base / "1")
    with LocalServer(one_model("tiny", base)) as server:
        asked = Asked(server)
        asked.base = base
        yield asked
        asked.close()


def refuse(changing, make, match):
    """A new version that `make` has made is tried, refused, and version 1 goes on."""
    number = max(changing.states()) + 1
    beside = changing.base / f"partial-{number}"
    make(beside)
    folder = beside.rename(changing.base / str(number))
    try:
        wait_until(lambda: changing.states().get(number, [""])[0] == "END")
        state, code, message = changing.states()[number]
        assert code != 0 and re.search(match, f"{CODES[code]}: {message}"), (CODES[code], message)
        assert changing.served_version() == 1
        _, found = changing.ask(f"/v1/models/tiny/versions/{number}")
        assert found["model_version_status"][0]["status"]["error_message"] == message
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("what", BROKEN)
def test_a_version_that_is_broken_leaves_the_old_one(changing, short, what):
    damage, match = BROKEN[what]

    def make(beside):
        shutil.copytree(short, beside)
        damage(beside)

    refuse(changing, make, match)


@pytest.mark.parametrize(
    ("module", "size", "match"),
    [
        (KerasRoot, 3, "FAILED_PRECONDITION: warm-up request 0: .*Could not find variable"),
        (Compiled, 1, "warm-up request 0: .*(XLA|compil|jit)"),
    ],
)
def test_what_only_python_can_run_leaves_the_old_one(changing, module, size, match):
    refuse(changing, lambda beside: save_module(module(), size, beside), match)


def test_a_new_version_takes_over_without_a_gap_and_its_removal_rolls_back(changing, short):
    number = max(changing.states()) + 1
    old = changing.server.versions.model(predict_spec()).pid
    stop, failures, seen = threading.Event(), [], []

    def ask():
        while not stop.is_set():
            try:
                seen.append(changing.served_version())
            except grpc.RpcError as error:
                failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    folder = add_version(short, changing.base, number)
    try:
        wait_until(lambda: changing.states()[1][0] == "END")
        assert changing.states()[number] == ("AVAILABLE", 0, "")
        assert changing.states()[1] == ("END", 0, "")
        wait_until(lambda: not Path("/proc", str(old)).exists())  # all its memory is given back
        wait_until(lambda: seen[-1] == number)
        folder.rename(folder.with_name(f"{number}.withdrawn"))
        wait_until(lambda: changing.states()[number][0] == "END")
        wait_until(lambda: seen[-1] == 1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert changing.states()[1] == ("AVAILABLE", 0, "")


def test_a_folder_that_is_gone_for_a_moment_changes_nothing(changing):
    said = []
    changing.server.versions._say, say = said.append, changing.server.versions._say
    away = changing.base.with_name("away")
    changing.base.rename(away)
    wait_until(lambda: any("cannot be looked for" in line for line in said))
    assert changing.served_version() == 1
    away.rename(changing.base)
    changing.server.versions._say = say
    assert sum("cannot be looked for" in line for line in said) == 1


def test_a_killed_process_is_unavailable_and_loaded_again(changing):
    model = changing.server.versions.model(predict_spec())
    document = ". ".join([" ".join(text.capitalize() for text in tiny.sentences(40))] * 20)
    request = make_request("tiny", [document] * 37, "translate_document")
    running = changing.prediction.Predict.future(request, timeout=SECONDS)
    wait_until(lambda: model._running)
    os.kill(model.pid, signal.SIGKILL)
    with refused("UNAVAILABLE", "was killed by SIGKILL"):
        running.result(SECONDS)

    def served():
        try:
            return changing.translate("a house")
        except grpc.RpcError as error:
            assert error.code().name == "UNAVAILABLE"  # what a client makes again
            return None

    assert wait_until(served)
    assert changing.server.versions.model(predict_spec()).pid != model.pid


def test_the_configuration_is_reloaded(changing, short):
    request = model_management_pb2.ReloadConfigRequest()
    request.config.CopyFrom(one_model("tiny", changing.base))
    other = request.config.model_config_list.config.add()
    other.CopyFrom(request.config.model_config_list.config[0])
    other.name, other.base_path = "other", str(short.parent)
    response = changing.service.HandleReloadConfigRequest(request, timeout=SECONDS)
    assert response.status.error_code == 0
    assert changing.translate("a house", model="other") == changing.translate("a house")
    other.base_path = str(short / "none")
    with refused("INVALID_ARGUMENT", "a base_path that is a folder"):
        changing.service.HandleReloadConfigRequest(request, timeout=SECONDS)
    assert changing.translate("a house", model="other")
    other.name, other.base_path = "empty", str(short)  # there is no version in it
    with refused("UNKNOWN", "Some models did not become available: {empty (no version)}"):
        changing.service.HandleReloadConfigRequest(request, timeout=SECONDS)
    del request.config.model_config_list.config[1]
    changing.service.HandleReloadConfigRequest(request, timeout=SECONDS)
    with refused("NOT_FOUND"):
        changing.translate("a house", model="other")
    assert changing.states("other")[1][0] == "END"
    with refused("INVALID_ARGUMENT", "Only ModelConfigList is currently supported"):
        changing.service.HandleReloadConfigRequest(model_management_pb2.ReloadConfigRequest())
    assert changing.translate("a house")


def test_warmup_requests_are_replayed(asked, served_model):
    model = asked.server.versions.model(predict_spec())
    assert model.warmup_requests == read_warmup(served_model / "1")
    assert len(model.warmup_requests) > 8  # one a signature, and more of serving_default


# Configurations.


def test_a_configuration_that_names_what_there_is_not(served_model, tmp_path):
    empty = model_server_config_pb2.ModelServerConfig()
    with pytest.raises(UsageError, match=r"at least one, got \[\]"):
        Versions(empty)
    config = one_model("tiny", tmp_path / "none")
    with pytest.raises(UsageError, match="got name 'tiny' and base_path"):
        Versions(config)
    config = one_model("tiny", served_model)
    config.model_config_list.config[0].model_platform = "tflite"
    with pytest.raises(UsageError, match="model_platform of 'tiny' must be 'tensorflow'"):
        Versions(config)
    config = one_model("tiny", served_model)
    config.model_config_list.config.add().CopyFrom(config.model_config_list.config[0])
    with pytest.raises(UsageError, match="names of their own"):
        Versions(config)


def test_a_base_path_of_the_container_is_the_folder_that_is_mounted(tmp_path):
    def read(base_path):
        path = tmp_path / "dates" / "models.config"
        path.parent.mkdir(exist_ok=True)
        config = one_model("dates", base_path)
        path.write_text(text_format.MessageToString(config))
        return read_config(path).model_config_list.config[0].base_path

    assert read("/models/dates") == str(tmp_path.resolve() / "dates")
    assert read("/models/other") == str(tmp_path.resolve() / "other")
    assert read("/modelsx/dates") == "/modelsx/dates"
    assert read("models/dates") == "models/dates"
    assert read(str(tmp_path)) == str(tmp_path)


def test_a_configuration_that_cannot_be_read(tmp_path):
    (tmp_path / "a").write_text("model_config_list { names: 'x' }")
    (tmp_path / "b").write_bytes(b"\xff")
    for name in ("a", "b", "none"):
        with pytest.raises(UsageError, match="the models' configuration cannot be read"):
            read_config(tmp_path / name)


# The command.


def start(*arguments):
    command = [sys.executable, "-m", "export.local_server", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_the_command_prints_a_line_that_works_and_ends_with_0(short):
    process = start(short.parent, "--name", "tiny", "--port", "0", "--rest-port", "0")
    try:
        line = process.stdout.readline()
        assert line.startswith("curl -d "), process.stderr.read()
        done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=SECONDS)
        assert '"predictions"' in done.stdout and '"translation"' in done.stdout, done.stderr
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in error
    assert "tiny version 1 is loaded" in error and "gRPC at 127.0.0.1:" in error


def test_a_directory_without_a_version_that_loads_ends_with_1_and_the_reason(short, tmp_path):
    base = tmp_path / "tiny"
    shutil.copytree(short, base / "1")
    flip_weights(base / "1")
    process = start(base, "--port", "0", "--rest-port", "0")
    output, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 1 and not output
    *_, last = error.splitlines()
    assert last.startswith("python -m export.local_server: error: Some models did not become")
    assert "version 1: DATA_LOSS" in last and "Traceback" not in error
    (tmp_path / "empty").mkdir()
    process = start(tmp_path / "empty", "--port", "0", "--rest-port", "0")
    output, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 1 and error.splitlines()[-1].endswith("{empty (no version)}")


@pytest.mark.parametrize("option", ["--port", "--rest-port"])
def test_a_taken_port_is_one_line(option, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ports = {"--port": "0", "--rest-port": "0", option: port}
        arguments = [part for pair in ports.items() for part in pair]
        assert local_server.main([str(tmp_path / "empty"), *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"python -m export.local_server: error: {option} must be free, got {port}"
    )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ([], "give a directory or --config, one of them"),
        (["x", "--config", "y"], "give a directory or --config, one of them"),
        (["x", "--port", "65536"], "--port must be in [0, 65535], got 65536"),
        (["x", "--rest-port", "-1"], "--rest-port must be in [0, 65535], got -1"),
        (["x", "--rest-timeout", "0"], "--rest-timeout must be positive, got 0"),
        (["x", "--intra-op-threads", "0"], "--intra-op-threads must be at least 1, got 0"),
        (["none"], "a base_path that is a folder"),
        (["--config", "none"], "the models' configuration cannot be read"),
        (["x", "--batching", "none"], "No such file"),
        (["x", "--batching", "wrong"], "batching parameters do not parse"),
    ],
)
def test_wrong_usage_is_one_line(arguments, match, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("x").mkdir()
    Path("wrong").write_text("most: 1")
    try:
        code = local_server.main(arguments)
    except SystemExit as error:
        code = error.code
    [line] = capsys.readouterr().err.splitlines()
    assert code == 2 and match in line


def test_the_time_of_a_request_by_rest(short):
    with LocalServer(one_model("tiny", short.parent), rest_timeout=0.05) as server:
        asked = Asked(server)
        document = ". ".join([" ".join(text.capitalize() for text in tiny.sentences(40))] * 20)
        body = {"signature_name": "translate_document", "inputs": {"text": [document] * 37}}
        start = time.monotonic()
        status, found = asked.ask(PREDICT, body)
        assert status == 504 and time.monotonic() - start < 30
        asked.close()
