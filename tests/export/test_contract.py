"""The page for other languages agrees with the code: names, ports, inputs, JSON, status codes."""

import json
import re
from http import HTTPStatus

import grpc
import pytest
from google.protobuf import json_format
from paths import ROOT
from serving import PREDICT, make_request
from tensorflow_serving.apis import (
    model_service_pb2,
    predict_pb2,
    prediction_service_pb2,
)

from export.remote.answers import CODES
from export.serving import http, metrics
from export.verification.graph import read_graph

PAGE = (ROOT / "docs" / "reference" / "contract.md").read_text(encoding="utf-8")
COMPOSE = (ROOT / "export" / "templates" / "docker-compose.yml").read_text(encoding="utf-8")


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title):
    """The cells of each row of a section's table."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def fences(language, text=PAGE):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


BODIES = [json.loads(line) for block in fences("json") for line in block.splitlines()]


@pytest.fixture(scope="module")
def signatures(served_model):
    """The signatures of an export without options."""
    return read_graph(served_model / "1").signatures


def test_table_of_inputs_equals_the_signatures(signatures):
    letters = {"[]": 0, "[B]": 1, "[B, S]": 2}
    table, defaults = {}, {}
    for names, name, dtype, shape, default in rows("Signatures and inputs"):
        for signature in re.findall(r"`(\w+)`", names):
            key = signature, name.strip("`")
            assert key not in table
            table[key] = dtype, letters[shape]
            if default:
                defaults[key] = float(default)
    dtypes = {"string": "DT_STRING", "int32": "DT_INT32", "float32": "DT_FLOAT"}
    assert table == {
        (signature, name): (dtypes[info.dtype], len(info.shape))
        for signature, parts in signatures.items()
        for name, info in parts.inputs.items()
    }
    assert defaults == pytest.approx(
        {
            (signature, name): float(value)
            for signature, parts in signatures.items()
            for name, value in parts.defaults.items()
        }
    )
    for (_, name), value in defaults.items():
        assert value == int(value) or table[_, name][0] == "DT_FLOAT"


def test_every_json_body_is_answered_and_names_all_inputs(asked, signatures):
    seen = set()
    for body in BODIES:
        name = body.get("signature_name", "serving_default")
        seen.add(name)
        status, found = asked.ask(PREDICT, body)
        assert status == 200, (body, found)
        if "inputs" in body:
            assert set(body["inputs"]) == set(signatures[name].inputs)
            assert set(found["outputs"]) == set(signatures[name].outputs)
        else:
            assert len(found["predictions"]) == len(body["instances"])
        given = {key: body.get("inputs", {}).get(key) for key in signatures[name].defaults}
        assert given == pytest.approx({k: float(v) for k, v in signatures[name].defaults.items()})
    assert seen == set(signatures)
    assert not [key for parts in signatures.values() for key in parts.outputs if "_bytes" in key]


def test_b64_text_gives_the_same_answer_as_plain_text(asked):
    [encoded] = re.findall(r'`(\{"b64": .*?\})`', PAGE)
    plain = asked.ask(PREDICT, {"instances": ["A man walks."]})
    assert asked.ask(PREDICT, {"instances": [json.loads(encoded)]}) == plain
    assert plain[0] == 200


def test_ports_paths_and_methods_match_the_code(asked):
    ports = dict(re.findall(r"\| (gRPC|REST) \| (\d+) \|", section("Where")))
    assert (
        ", ".join(
            f'"${{BIND:-127.0.0.1}}:{ports[name]}:{ports[name]}"' for name in ("gRPC", "REST")
        )
        in COMPOSE
    )
    assert set(re.findall(r"localhost:(\d+)", PAGE)) == set(ports.values())
    assert set(re.findall(r"http://localhost:(\S+?mine:predict)", PAGE)) == {
        f"{ports['REST']}/v1/models/mine:predict"
    }
    for method, path in re.findall(r"`(GET|POST) (/\S+)`", section("Where")):
        if path == metrics.PATH:
            continue
        assert (http.PREDICT if method == "POST" else http.STATUS).fullmatch(path), path
    assert f"GET {metrics.PATH}" in section("Where")
    services = {
        f"{service.full_name}/{method}"
        for file in (prediction_service_pb2, model_service_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods_by_name
    }
    assert set(re.findall(r"tensorflow\.serving\.\w+/\w+", PAGE)) <= services
    assert "tensorflow.serving.PredictionService/GetModelMetadata" in services


def imported(descriptor):
    """The names of the files that a proto file imports, directly or indirectly."""
    return {descriptor.name}.union(*(imported(file) for file in descriptor.dependencies))


def test_protocol_buffer_names_exist():
    text = section("Protocol buffers")
    files = re.findall(r"(?m)^tensorflow\S*\.proto$", text)
    assert files and set(files) <= imported(prediction_service_pb2.DESCRIPTOR)
    assert f"The package is `{predict_pb2.DESCRIPTOR.package}`" in text
    request = predict_pb2.PredictRequest.DESCRIPTOR
    spec, tensor = (request.fields_by_name[n].message_type for n in ("model_spec", "inputs"))
    tensor = tensor.fields_by_name["value"].message_type
    for message, names in (
        (spec, ["name", "signature_name", "version", "version_label"]),
        (tensor, ["dtype", "tensor_shape", "string_val", "int_val", "float_val"]),
        (predict_pb2.PredictResponse.DESCRIPTOR, ["outputs"]),
    ):
        for name in names:
            assert name in message.fields_by_name and f"`{name}`" in text, name
    for file in (prediction_service_pb2, predict_pb2):
        options = file.DESCRIPTOR.GetOptions()
        assert not options.go_package and not options.java_package


def test_grpcurl_example_is_answered(asked):
    [line] = fences("sh")
    proto = re.search(r"-proto (\S+)", line)[1]
    assert proto == prediction_service_pb2.DESCRIPTOR.name
    body = re.search(r"-d '(.*?)'", line)[1]
    request = json_format.Parse(body, predict_pb2.PredictRequest())
    assert request.inputs["text"].string_val == [b"A man walks."]
    request.model_spec.name = "tiny"
    assert asked.predict(request)["translations"].shape == (1, 2)


def test_example_programs_send_the_documented_body():
    for language in ("go", "java", "js"):
        [program] = fences(language)
        [body] = re.findall(r'\{"instances.*?\]\}', program.replace('\\"', '"'))
        assert json.loads(body) == {"instances": ["A man walks."]}, language
        assert program.count("(") == program.count(")"), language
        assert program.count("{") == program.count("}"), language


# The status codes.


def test_error_codes_match_the_routes_and_the_client():
    for what, code, status, _ in rows("Errors"):
        assert not code or code in grpc.StatusCode.__members__
        HTTPStatus(int(status))
        if code and what != "a path that there is not":
            assert http.STATUSES.get(code, http.OTHERWISE) == int(status), what
            if code not in ("FAILED_PRECONDITION", "INTERNAL"):  # REST has one code for both
                assert CODES[int(status)] == code, what


MANY = ["a"] * 38
NONE = {"signature": "none", "text": ["a"]}, {"signature_name": "none", "instances": ["a"]}
RANK = {"text": [["a"]]}, {"inputs": {"text": [["a"]]}}
# By gRPC, if the mistake is possible there; by REST, a path and a body.
MISTAKES = {
    "no such model, or version": ({"model": "no", "text": ["a"]}, "/v1/models/no:predict", {}),
    "no such signature": (NONE[0], PREDICT, NONE[1]),
    "an input missing, unknown, of another type or rank": (RANK[0], PREDICT, RANK[1]),
    "an option out of its range, too many rows, batches of different size": (
        {"text": MANY},
        PREDICT,
        {"instances": MANY},
    ),
    "a body that is no JSON, or not of the forms above": (None, PREDICT, b"{"),
    "a path that there is not": (None, "/v2/models/tiny", {}),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistake_gets_its_documented_code(what, asked):
    [(code, status)] = [row[1:3] for row in rows("Errors") if row[0] == what]
    request, path, body = MISTAKES[what]
    assert asked.ask(path, body)[0] == int(status)
    if request:
        with pytest.raises(grpc.RpcError) as error:
            asked.predict(make_request(**{"model": "tiny", **request}))
        assert error.value.code().name == code


def test_unknown_label_gets_its_documented_code(asked):
    [(code, status)] = [row[1:3] for row in rows("Errors") if row[0] == "no such label"]
    assert asked.ask("/v1/models/tiny/labels/none:predict", {"instances": ["a"]})[0] == int(status)
    request = make_request("tiny", ["a"])
    request.model_spec.version_label = "none"
    with pytest.raises(grpc.RpcError) as error:
        asked.predict(request)
    assert error.value.code().name == code
