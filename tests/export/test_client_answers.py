"""Each answer is compared with the request; a wrong one gives a line and exit code 1."""

import json

import pytest
from hostile import command, described, predicted, raw_grpc
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from told import METADATA, Told

from export.client import GrpcClient, RequestError, RestClient

NO_TEXTS = "the server's answer has a translation that is no text"
NO_LIST = "the server's answer has no list `translation`"
WRONG = [
    ({"translation": ["a"]}, "the server answered 2 texts with 1 translations"),
    ({"translation": ["a", "b", "c"]}, "the server answered 2 texts with 3 translations"),
    ({"translation": "ab"}, NO_LIST),
    ({"translation": None}, NO_LIST),
    ({"translation": {"a": 1, "b": 2}}, NO_LIST),
    ({"other": ["a", "b"]}, NO_LIST),
    (["a", "b"], NO_LIST),
    (None, NO_LIST),
    ({"translation": [1, 2]}, NO_TEXTS),
    ({"translation": ["a", None]}, NO_TEXTS),
    ({"translation": [["a"], ["b"]]}, NO_TEXTS),
    ({"translation": ["a", "\ud800"]}, NO_TEXTS),
]


@pytest.mark.parametrize(("outputs", "why"), WRONG)
def test_wrong_rest_answer_gives_one_line_error(outputs, why, monkeypatch, capfdbinary):
    with Told(METADATA, (200, {"outputs": outputs})) as told:
        found = command(monkeypatch, capfdbinary, b"x\ny\n", "--url", told.url)
    assert found == (1, b"", [f"python -m export.client: error: UNKNOWN: {why}"])


def test_deep_json_or_huge_number_gives_one_line_error(monkeypatch, capfdbinary):
    deep, digits = b"[" * 100_000, b"1" * 5_000
    for answers in (
        [METADATA, (200, b'{"outputs": ' + deep)],
        [METADATA, (200, b'{"outputs": {"translation": ' + digits + b"}}")],
        [(200, b'{"metadata": ' + deep)],
        [(500, deep)],
    ):
        with Told(*answers) as told:
            found = command(monkeypatch, capfdbinary, b"x\n", "--url", told.url)
        code, output, [line] = found
        assert (code, output) == (1, b"") and "UNKNOWN: " in line and len(line) < 700


DAMAGED = [
    [], {"s": []}, {"s": None}, {"s": {"defaults": {"n": {}}}}, {"s": {"defaults": [1]}},
    {"s": {"defaults": {"n": {"dtype": "DT_INT32", "tensor_content": "!"}}}},
    {"s": {"defaults": {"n": {"dtype": "DT_INT32", "tensor_content": "AAAA"}}}},
    {"s": {"defaults": {"n": {"dtype": "DT_INT32", "int_val": ["x"]}}}},
    {"s": {"outputs": {"n": {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "x"}]}}}}},
    {"s": {"outputs": {"n": {}}}},
]  # fmt: skip


@pytest.mark.parametrize("signatures", DAMAGED)
def test_damaged_metadata_raises_request_error(signatures):
    with Told((200, {"metadata": {"signature_def": {"signature_def": signatures}}})) as told:
        with pytest.raises(RequestError, match="UNKNOWN: the metadata of the model is damaged"):
            RestClient("tiny", told.url).predict({"text": ["house"]})
        assert len(told.asked) == 1


DECLARED = {
    "word": ("DT_STRING", []),
    "rows": ("DT_INT32", [-1, 2]),
    "scores": ("DT_FLOAT", [-1]),
    "flags": ("DT_BOOL", [1]),
}
FITS = {"word": "ü", "rows": [[1, 2]], "scores": [0.5, 1, 2.5], "flags": [True]}
UNFIT = [
    {"word": ["a"]}, {"word": 1}, {"word": None}, {"rows": [1, 2]}, {"rows": [[1, 2], [3]]},
    {"rows": [[1.5, 2.0]]}, {"rows": [[True, False]]}, {"rows": "ab"}, {"scores": ["a"]},
    {"scores": [None]}, {"scores": {"a": 1.0}}, {"flags": [1]}, {"flags": [True, True]},
]  # fmt: skip


def test_rest_outputs_must_match_the_declared_signature():
    outputs = {
        name: {
            "dtype": kind,
            "tensor_shape": {"dim": [{"size": str(size)} for size in shape]},
        }
        for name, (kind, shape) in DECLARED.items()
    }
    metadata = {"serving_default": {"outputs": outputs}}
    metadata = (200, {"metadata": {"signature_def": {"signature_def": metadata}}})
    answers = [(200, {"outputs": FITS | change}) for change in ({}, *UNFIT)]
    missing = (200, {"outputs": {name: FITS[name] for name in FITS if name != "rows"}})
    with Told(metadata, *answers, missing) as told:
        asking = RestClient("tiny", told.url)
        assert asking.predict({"text": "x"}) == FITS
        for change in UNFIT:
            [name] = change
            with pytest.raises(RequestError, match=f"UNKNOWN: the server's output {name} must be"):
                asking.predict({"text": "x"})
        with pytest.raises(RequestError, match="UNKNOWN: the server's answer has no output rows"):
            asking.predict({"text": "x"})


def asked_by_grpc(predict, metadata=None):
    with raw_grpc(predict, metadata) as address:
        asking = GrpcClient("tiny", address, retries=0)
        try:
            return list(asking.translate(["x", "y"]))
        finally:
            asking.close()


def tensor(*sizes, kind="DT_STRING", **values):
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DataType.Value(kind), **values)
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    return proto


def test_wrong_grpc_answer_raises_request_error():
    one, two = [b"a"], [b"a", b"b"]
    assert asked_by_grpc(predicted(translation=tensor(2, string_val=two))) == ["a", "b"]
    for answer, why in (
        (predicted(translation=["a"]), "answered 2 texts with 1"),
        (predicted(translation="ab"), NO_LIST),
        (predicted(translation=[1, 2]), NO_TEXTS),
        (predicted(translation=[["a"], ["b"]]), NO_TEXTS),
        (predicted(other=["a", "b"]), NO_LIST),
        (b"", NO_LIST),
        # One value that stands for many, by a shape that is only claimed.
        (predicted(translation=tensor(2, string_val=one)), "not the values of its shape"),
        (predicted(translation=tensor(2**40, string_val=one)), "not the values of its shape"),
        (predicted(translation=tensor(2, string_val=one, half_val=[1])), "not the values"),
        (predicted(translation=tensor(2**40, 0)), "not the values of its shape"),
        (predicted(translation=tensor(-2, string_val=two)), "not the values of its shape"),
        (predicted(translation=tensor(2, kind="DT_FLOAT", float_val=[1])), "not the values"),
        (predicted(translation=tensor(2, kind="DT_FLOAT", tensor_content=b"abc")), "no tensor"),
        (predicted(translation=tensor(2, kind="DT_INVALID")), "not the values"),
        (predicted(translation=tensor(0, kind="DT_RESOURCE")), "no tensor"),
    ):
        with pytest.raises(RequestError) as error:
            asked_by_grpc(answer)
        assert error.value.code == "UNKNOWN" and why in error.value.message, error.value


def test_grpc_outputs_must_match_the_declared_signature():
    signatures = get_model_metadata_pb2.SignatureDefMap()
    declared = signatures.signature_def["serving_default"].outputs["translation"]
    declared.dtype = types_pb2.DT_STRING
    declared.tensor_shape.dim.add(size=-1)
    declared = described(signatures)
    assert asked_by_grpc(predicted(translation=["a", "b"]), declared) == ["a", "b"]
    for answer in (predicted(translation=[1, 2]), predicted(translation=[["a", "b"]])):
        with pytest.raises(RequestError, match="output translation must be DT_STRING of shape"):
            asked_by_grpc(answer, declared)
    for kind in (types_pb2.DT_INT32, types_pb2.DT_INVALID, 999):
        signatures.signature_def["serving_default"].inputs["text"].dtype = kind
        with pytest.raises(RequestError, match="INVALID_ARGUMENT: input text cannot be of the"):
            asked_by_grpc(predicted(translation=["a", "b"]), described(signatures))


def test_translations_before_a_wrong_answer_are_still_printed(monkeypatch, capfdbinary):
    answers = [(200, {"outputs": {"translation": [word]}}) for word in ("Haus", "See", "\udfff")]
    with Told(METADATA, *answers) as told:
        where = ["--url", told.url, "--batch-size", "1"]
        code, output, [line] = command(monkeypatch, capfdbinary, b"x\ny\nz\n", *where)
    assert (code, output) == (1, b"Haus\nSee\n") and line.endswith(NO_TEXTS)
    assert json.dumps("\udfff") == '"\\udfff"'  # as the server sent it


ONE = {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "-1"}]}}
ONE = {"signature_def": {"serving_default": {"outputs": {"translation": ONE}}}}


@pytest.mark.parametrize("outputs", [["Haus"], {"translation": ["Haus"]}])
def test_single_output_is_accepted_with_or_without_its_name(outputs):
    """A server leaves the name out."""
    metadata = (200, {"metadata": {"signature_def": ONE}})
    with Told(metadata, (200, {"outputs": outputs})) as told:
        asking = RestClient("tiny", told.url, retries=0)
        assert asking.predict({"text": ["house"]}) == {"translation": ["Haus"]}
        assert list(asking.translate(["house"])) == ["Haus"]
