"""Predictions by gRPC and by REST: values, defaults, and errors of a request."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
import tiny
from serving import PREDICT, Asked, make_request, predict_spec, refused, wait_until

from export.artifacts.examples import sample_requests
from export.client import GrpcClient, RestClient
from export.local_server import LocalServer
from export.serving.versions import one_model
from export.verification.compare import answer
from export.verification.graph import read_graph


@pytest.mark.slow
def test_grpc_and_rest_answers_equal_the_translator_for_every_signature(asked, translator_served):
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


def test_scalar_text_is_refused_with_a_shape_error(asked):
    """The message comes from the graph, because a stock server compares no shapes either."""
    said = "Shape of tensor _arg_serving_default_text_0_0 [] is not compatible with expected shape"
    with refused("INVALID_ARGUMENT", said):
        asked.predict(make_request("tiny", "a house"))
    status, found = asked.ask(PREDICT, {"inputs": "a house"})
    assert status == 400 and said in found["error"]


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


def test_all_forms_of_instances_and_inputs_are_translated(asked, translator_served):
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


def test_invalid_utf8_in_json_reaches_the_model(asked, translator_served):
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
        (b'{"instances": ["\\ud800", "\xff"]}', "The surrogate pair in string is invalid"),
        (b'{"signature_name": "\xff", "instances": ["a"]}', 'name: "\ufffd" not found'),
        (b'{"instances": [{"\xff": "a"}]}', "does not have named input: \ufffd"),
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
def test_invalid_json_gives_400_and_a_reason(asked, body, match):
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
def test_json_numbers_of_the_wrong_type_are_refused(asked, name, value, match):
    defaults = read_graph(asked.server.versions.model(predict_spec()).directory).signatures
    inputs = {key: array.tolist() for key, array in defaults["beam_search"].defaults.items()}
    inputs |= {"text": ["a"], name: value}
    status, found = asked.ask(PREDICT, {"signature_name": "beam_search", "inputs": inputs})
    assert status == 400 and match in found["error"]


def test_requests_by_version_and_by_label_are_answered(asked, translator_served):
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


def test_tensor_that_does_not_parse_is_refused(asked):
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


def test_output_filter_selects_outputs_and_refuses_wrong_names(asked):
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
    wait_until(lambda: not model._running)  # the server also stopped waiting for it
    with contextlib.closing(Asked(asked.server)) as other:
        assert other.translate("a house") == asked.translate("a house")


@pytest.mark.slow
def test_single_output_is_unnamed_in_rest_answers(tmp_path):
    """As `MakeJsonFromTensors` of the stock server does; the clients add the name."""
    root = tf.Module()
    text = tf.TensorSpec([None], tf.string, "text")
    root.upper = tf.function(
        lambda text: {"translation": tf.strings.upper(text)}, input_signature=[text]
    )
    root.size = tf.function(lambda text: {"size": tf.size(text)}, input_signature=[text])
    signatures = {"serving_default": root.upper, "size": root.size}
    tf.saved_model.save(root, str(tmp_path / "1"), signatures=signatures)
    with LocalServer(one_model("tiny", tmp_path)) as server:
        asked = Asked(server)
        rows = {"instances": [{"text": "a"}, {"text": "b"}]}
        assert asked.ask(PREDICT, rows) == (200, {"predictions": ["A", "B"]})
        for inputs in ({"text": ["a", "b"]}, ["a", "b"]):
            assert asked.ask(PREDICT, {"inputs": inputs}) == (200, {"outputs": ["A", "B"]})
        body = {"signature_name": "size", "inputs": ["a", "b"]}
        assert asked.ask(PREDICT, body) == (200, {"outputs": 2})
        clients = [RestClient("tiny", asked.url), GrpcClient("tiny", f"127.0.0.1:{server.port}")]
        for client in clients:
            assert list(client.translate(["a", "b", "c"], batch_size=2)) == ["A", "B", "C"]
            assert client.predict({"text": ["a", "b"]}, "size") == {"size": 2}
            client.close()
        asked.close()
