"""The clients return the server's answers, and each failure is one clear line."""

import socket

import pytest
import tiny
from told import ANSWER, BUSY, METADATA, Told

from export import client
from export.client import GrpcClient, RequestError, RestClient


@pytest.fixture(scope="module", params=["REST", "gRPC"])
def make(request, asked):
    """`make(**options)` is a client of the model, by REST or by gRPC."""
    clients = []

    def run(model="tiny", **options):
        if request.param == "REST":
            return RestClient(model, f"http://127.0.0.1:{asked.server.rest_port}", **options)
        clients.append(GrpcClient(model, f"127.0.0.1:{asked.server.port}", **options))
        return clients[-1]

    yield run
    for made in clients:
        made.close()


def test_predict_fills_in_defaults(make):
    whole = {"beam_width": 4, "length_penalty": 0.6, "max_length": 0, "min_length": 0}
    whole |= {"max_length_factor": 0.0, "coverage_penalty": 0.0, "repetition_penalty": 1.0}
    whole |= {"no_repeat_ngram": 0, "text": ["a house", "the lake"]}
    tiny_client = make()
    by_default = tiny_client.predict({"text": whole["text"]}, "beam_search")
    assert by_default == tiny_client.predict(whole, "beam_search")
    assert [len(row) for row in by_default["translations"]] == [4, 4]
    narrow = tiny_client.predict({"text": ["a house"], "beam_width": 1}, "beam_search")
    assert len(narrow["translations"][0]) == 1
    drawn = tiny_client.predict({"text": ["a house"], "seed": 3, "temperature": 2}, "sample")
    assert isinstance(drawn["translation"][0], str) and drawn["log_prob"][0] < 0


def test_predict_gives_the_same_by_rest_and_grpc(asked):
    texts = ["a house", "", "Grüße 🎉"]
    by_rest = RestClient("tiny", f"http://127.0.0.1:{asked.server.rest_port}")
    by_grpc = GrpcClient("tiny", f"127.0.0.1:{asked.server.port}")
    for signature, inputs in (
        ("serving_default", {"text": texts}),
        ("align", {"source": texts, "target": texts}),
        ("beam_search_ids", {"source_ids": [[5, 6, 3], [7, 3, 0]]}),
    ):
        ours, theirs = by_rest.predict(inputs, signature), by_grpc.predict(inputs, signature)
        assert set(ours) == set(theirs)
        for key in ours:
            mine, other = flat(ours[key]), flat(theirs[key])
            if isinstance(mine[0], float):
                assert mine == pytest.approx(other, rel=1e-5), key
            else:
                assert mine == other, key
    by_grpc.close()


def flat(value):
    return [x for item in value for x in flat(item)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("batch_size", [1, 7, 37])
def test_translate_keeps_order_and_sends_batches(make, translator_served, batch_size, monkeypatch):
    texts = [*tiny.sentences(23), "", "Grüße 🎉"]
    tiny_client, sizes = make(), []
    predict = tiny_client.predict

    def count(inputs, signature):
        sizes.append(len(inputs["text"]))
        return predict(inputs, signature)

    monkeypatch.setattr(tiny_client, "predict", count)
    found = tiny_client.translate(iter(texts), batch_size)
    assert sizes == []  # nothing is requested before it is needed
    assert list(found) == translator_served.translate(texts)
    assert sizes == [min(batch_size, 25 - start) for start in range(0, 25, batch_size)]
    assert list(tiny_client.translate([])) == []


def test_document_is_translated_sentence_by_sentence(make, translator_served):
    alone = translator_served.translate(["A house.", "The lake"])
    [found] = make().translate(["A house. The lake"], document=True)
    assert found == " ".join(alone)


def test_client_selects_a_version_or_label(make):
    text = {"text": ["a house"]}
    assert make(version=1).predict(text) == make().predict(text)
    labelled = make("labelled model", label="stable")
    assert labelled.predict(text) == make("labelled model", version=1).predict(text)
    with pytest.raises(RequestError, match="NOT_FOUND: Servable not found for request: Spec"):
        make(version=7).predict(text)
    with pytest.raises(RequestError, match="INVALID_ARGUMENT: Unrecognized servable version label"):
        make(label="a/b c").predict(text)


def test_server_error_is_raised_without_a_retry(make, monkeypatch):
    monkeypatch.setattr(client, "FIRST_WAIT", 600)
    whole = r"INVALID_ARGUMENT: beam_width must be in \[1, 64\], got \d+$"
    with pytest.raises(RequestError, match=whole) as error:
        make().predict({"text": ["a"], "beam_width": 65}, "beam_search")
    assert error.value.code == "INVALID_ARGUMENT"
    with pytest.raises(RequestError, match=r"NOT_FOUND: .*Latest\(no/ne\)"):
        make("no/ne").predict({"text": ["a"]})


def test_request_over_its_timeout_raises_deadline_exceeded(make):
    tiny_client = make(timeout=60)
    tiny_client.predict({"text": ["a"]})
    tiny_client.timeout = 0.05
    document = ". ".join([" ".join(text.capitalize() for text in tiny.sentences(40))] * 20)
    with pytest.raises(RequestError) as error:
        tiny_client.predict({"text": [document] * 37}, "translate_document")
    assert error.value.code == "DEADLINE_EXCEEDED"
    tiny_client.timeout = 60
    assert tiny_client.predict({"text": ["a"]})


@pytest.mark.parametrize("kind", [RestClient, GrpcClient])
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"version": 1, "label": "x"}, "version and label exclude each other, got 1 and 'x'"),
        ({"timeout": 0}, "timeout must be positive, got 0"),
        ({"timeout": float("nan")}, "timeout must be positive, got nan"),
        ({"retries": -1}, "retries must not be negative, got -1"),
    ],
)
def test_wrong_arguments(kind, options, match):
    with pytest.raises(ValueError, match=match):
        kind("tiny", **options)


def test_a_url_needs_a_scheme():
    with pytest.raises(ValueError, match="url must begin with http:// or https://, got 'localhost"):
        RestClient("tiny", "localhost:8501")


@pytest.fixture
def waits(monkeypatch):
    """The seconds that a client waits; the test itself does not wait."""
    waits = []
    monkeypatch.setattr(client.time, "sleep", waits.append)
    return waits


def test_unavailable_server_is_retried(waits):
    with Told(METADATA, BUSY, BUSY, BUSY, ANSWER) as told:
        found = RestClient("tiny", told.url).predict({"text": ["house"]})
        assert found == {"translation": ["Haus"]}
        assert told.asked == ["/v1/models/tiny/metadata", *["/v1/models/tiny:predict"] * 4]
    assert waits == [0.2, 0.4, 0.8]


def test_unavailable_is_raised_after_the_last_retry(waits):
    with Told(METADATA, BUSY) as told, pytest.raises(RequestError) as error:
        RestClient("tiny", told.url, retries=2).predict({"text": ["house"]})
    assert (error.value.code, error.value.message) == ("UNAVAILABLE", "the queue is full")
    assert len(told.asked) == 1 + 3 and waits == [0.2, 0.4]


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "INVALID_ARGUMENT"), (404, "NOT_FOUND"), (429, "RESOURCE_EXHAUSTED"), (500, "UNKNOWN"),
     (501, "UNIMPLEMENTED"), (504, "DEADLINE_EXCEEDED")],
)  # fmt: skip
def test_any_other_error_is_not_retried(status, code, waits):
    with Told(METADATA, (status, {"error": "no"})) as told, pytest.raises(RequestError) as error:
        RestClient("tiny", told.url).predict({"text": ["house"]})
    assert (error.value.code, error.value.message) == (code, "no")
    assert len(told.asked) == 2 and not waits


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ((200, b"<html>"), "UNKNOWN: .* did not answer JSON"),
        ((200, b"\xff"), "UNKNOWN: .* did not answer JSON"),
        ((200, {"predictions": []}), "UNKNOWN: .* is not a model server: .* has no outputs"),
        ((200, [1]), "UNKNOWN: .* is not a model server"),
        ((500, b"<html>"), "UNKNOWN: HTTP 500: <html>"),
        ((400, {"detail": "x"}), "INVALID_ARGUMENT: HTTP 400: "),
    ],
)
def test_malformed_answer_raises_request_error(answer, match, waits):
    with Told(METADATA, answer) as told, pytest.raises(RequestError, match=match):
        RestClient("tiny", told.url).predict({"text": ["house"]})
    with Told(answer) as told, pytest.raises(RequestError):
        RestClient("tiny", told.url).predict({"text": ["house"]})
    assert not waits


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_closed_port_raises_unavailable_after_the_retries(waits):
    port = free_port()
    with pytest.raises(RequestError, match="UNAVAILABLE: .*refused"):
        RestClient("tiny", f"http://127.0.0.1:{port}", retries=2).predict({"text": ["a"]})
    grpc_client = GrpcClient("tiny", f"127.0.0.1:{port}", retries=1)
    with pytest.raises(RequestError, match="UNAVAILABLE: "):
        grpc_client.predict({"text": ["a"]})
    grpc_client.close()
    assert waits == [0.2, 0.4, 0.2]
