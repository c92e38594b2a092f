"""The server's answers about its models, and about models that it does not have."""

from pathlib import Path

import pytest
import tensorflow as tf
from serving import PREDICT, SECONDS, make_request, refused
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
)


def test_status_is_available_by_rest_and_grpc(asked):
    version = {"version": "1", "state": "AVAILABLE"}
    version["status"] = {"error_code": "OK", "error_message": ""}
    for path in ("/v1/models/tiny", "/v1/models/tiny/versions/1", "/V1/Models/tiny?x=1"):
        assert asked.ask(path) == (200, {"model_version_status": [version]})
    assert asked.states() == {1: ("AVAILABLE", 0, "")}
    assert asked.states("labelled model") == {1: ("AVAILABLE", 0, "")}


def test_metadata_by_grpc_and_rest_lists_the_same_signatures(asked):
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
def test_post_to_an_unknown_path_is_an_error(asked, path, status, error):
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
def test_get_of_an_unknown_path_is_an_error(asked, path, status, error):
    assert asked.ask(path) == (status, {"error": error})


def test_put_and_delete_are_malformed_requests(asked):
    for method in ("PUT", "DELETE"):
        status, found = asked.ask(PREDICT, b"{}", method)
        assert (status, found) == (400, {"error": f"Malformed request: {method} {PREDICT}"})


def test_grpc_requests_for_unknown_names_are_refused(asked):
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


def test_server_listens_only_on_loopback(asked):
    for port in (asked.server.port, asked.server.rest_port):
        listening = {
            line.split()[1]
            for name in ("tcp", "tcp6")
            for line in Path("/proc/net", name).read_text().splitlines()[1:]
            if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
        }
        local = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, and in IPv6
        assert listening and {address.partition(":")[0] for address in listening} <= local
