"""The clients: what they ask is what the server answers, and every failure is one clear line."""

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
import tiny
from paths import ROOT
from serving import SECONDS, add_version

from export import client
from export.client import GrpcClient, RequestError, RestClient
from export.local_server import LocalServer
from export.serving.versions import one_model


@pytest.fixture(scope="module")
def server(served_model, tmp_path_factory):
    """A server of versions 1 and 2, which are the same, the first with a label."""
    base = tmp_path_factory.mktemp("client") / "tiny"
    base.mkdir()
    for version in (1, 2):
        add_version(served_model / "1", base, version, warmup=False)
    config = one_model("tiny", base)
    model = config.model_config_list.config[0]
    model.model_version_policy.specific.versions.extend([1, 2])
    model.version_labels["stable"] = 1
    with LocalServer(config) as server:
        yield server


@pytest.fixture(scope="module", params=["REST", "gRPC"])
def make(request, server):
    """`make(**options)` is a client of the model, by REST or by gRPC."""
    clients = []

    def run(model="tiny", **options):
        if request.param == "REST":
            return RestClient(model, f"http://127.0.0.1:{server.rest_port}", **options)
        clients.append(GrpcClient(model, f"127.0.0.1:{server.port}", **options))
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


def test_predict_gives_the_same_by_both(server):
    texts = ["a house", "", "Grüße 🎉"]
    by_rest = RestClient("tiny", f"http://127.0.0.1:{server.rest_port}")
    by_grpc = GrpcClient("tiny", f"127.0.0.1:{server.port}")
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
def test_translate_is_in_order_and_in_batches(make, translator_served, batch_size, monkeypatch):
    texts = [*tiny.sentences(23), "", "Grüße 🎉"]
    tiny_client, sizes = make(), []
    predict = tiny_client.predict

    def count(inputs, signature):
        sizes.append(len(inputs["text"]))
        return predict(inputs, signature)

    monkeypatch.setattr(tiny_client, "predict", count)
    found = tiny_client.translate(iter(texts), batch_size)
    assert sizes == []  # nothing is asked before it is wanted
    assert list(found) == translator_served.translate(texts)
    assert sizes == [min(batch_size, 25 - start) for start in range(0, 25, batch_size)]
    assert list(tiny_client.translate([])) == []


def test_documents(make, translator_served):
    alone = translator_served.translate(["A house.", "The lake"])
    [found] = make().translate(["A house. The lake"], document=True)
    assert found == " ".join(alone)


def test_a_version_and_a_label(make):
    text = {"text": ["a house"]}
    assert make(version=1).predict(text) == make(label="stable").predict(text)
    with pytest.raises(RequestError, match="NOT_FOUND: Servable not found for request: Spec"):
        make(version=7).predict(text)
    with pytest.raises(RequestError, match="INVALID_ARGUMENT: Unrecognized servable version label"):
        make(label="a/b c").predict(text)


def test_an_error_of_the_server_is_carried_over_and_not_asked_again(make, monkeypatch):
    monkeypatch.setattr(client, "FIRST_WAIT", 600)
    with pytest.raises(RequestError, match=r"beam_width must be in \[1, 64\]") as error:
        make().predict({"text": ["a"], "beam_width": 65}, "beam_search")
    assert error.value.code == "INVALID_ARGUMENT"
    with pytest.raises(RequestError, match=r"NOT_FOUND: .*Latest\(no/ne\)"):
        make("no/ne").predict({"text": ["a"]})


def test_a_request_that_takes_too_long(make):
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


# A server that answers as it is told.


class Told:
    """Answers with each of `answers`, (status, body), the last one again and again."""

    def __init__(self, *answers):
        told, self.asked = self, []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_GET(self):
                status, body = answers[min(len(told.asked), len(answers) - 1)]
                told.asked.append(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_):
                """Says nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


METADATA = (200, {"metadata": {"signature_def": {"signature_def": {}}}})
BUSY = (503, {"error": "the queue is full"})
ANSWER = (200, {"outputs": {"translation": ["Haus"]}})


@pytest.fixture
def waits(monkeypatch):
    """The seconds that a client waits, without waiting."""
    waits = []
    monkeypatch.setattr(client.time, "sleep", waits.append)
    return waits


def test_what_is_unavailable_is_asked_again(waits):
    with Told(METADATA, BUSY, BUSY, BUSY, ANSWER) as told:
        found = RestClient("tiny", told.url).predict({"text": ["house"]})
        assert found == {"translation": ["Haus"]}
        assert told.asked == ["/v1/models/tiny/metadata", *["/v1/models/tiny:predict"] * 4]
    assert waits == [0.2, 0.4, 0.8]


def test_what_stays_unavailable_is_the_answer(waits):
    with Told(METADATA, BUSY) as told, pytest.raises(RequestError) as error:
        RestClient("tiny", told.url, retries=2).predict({"text": ["house"]})
    assert (error.value.code, error.value.message) == ("UNAVAILABLE", "the queue is full")
    assert len(told.asked) == 1 + 3 and waits == [0.2, 0.4]


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "INVALID_ARGUMENT"), (404, "NOT_FOUND"), (429, "RESOURCE_EXHAUSTED"), (500, "UNKNOWN"),
     (501, "UNIMPLEMENTED"), (504, "DEADLINE_EXCEEDED")],
)  # fmt: skip
def test_any_other_error_is_asked_once(status, code, waits):
    with Told(METADATA, (status, {"error": "no"})) as told, pytest.raises(RequestError) as error:
        RestClient("tiny", told.url).predict({"text": ["house"]})
    assert (error.value.code, error.value.message) == (code, "no")
    assert len(told.asked) == 2 and not waits


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ((200, b"<html>"), "UNKNOWN: .* answered no JSON"),
        ((200, b"\xff"), "UNKNOWN: .* answered no JSON"),
        ((200, {"predictions": []}), "UNKNOWN: .* is no server of models: .* has no outputs"),
        ((200, [1]), "UNKNOWN: .* is no server of models"),
        ((500, b"<html>"), "UNKNOWN: HTTP 500: <html>"),
        ((400, {"detail": "x"}), "INVALID_ARGUMENT: HTTP 400: "),
    ],
)
def test_an_answer_that_no_server_of_models_gives(answer, match, waits):
    with Told(METADATA, answer) as told, pytest.raises(RequestError, match=match):
        RestClient("tiny", told.url).predict({"text": ["house"]})
    with Told(answer) as told, pytest.raises(RequestError):
        RestClient("tiny", told.url).predict({"text": ["house"]})
    assert not waits


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_nobody_listens(waits):
    port = free_port()
    with pytest.raises(RequestError, match="UNAVAILABLE: .*refused"):
        RestClient("tiny", f"http://127.0.0.1:{port}", retries=2).predict({"text": ["a"]})
    grpc_client = GrpcClient("tiny", f"127.0.0.1:{port}", retries=1)
    with pytest.raises(RequestError, match="UNAVAILABLE: "):
        grpc_client.predict({"text": ["a"]})
    grpc_client.close()
    assert waits == [0.2, 0.4, 0.2]


def test_a_server_that_says_nothing(waits):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RequestError, match="DEADLINE_EXCEEDED: no answer from .* within 0.1"):
            RestClient("tiny", url, timeout=0.1).predict({"text": ["a"]})
    assert not waits


# The command.


def run(*arguments, input=b"", **options):
    command = [sys.executable, "-m", "export.client", *arguments]
    return subprocess.run(
        command, cwd=ROOT, input=input, capture_output=True, timeout=SECONDS, **options
    )


@pytest.fixture(scope="module")
def url(server):
    return f"http://127.0.0.1:{server.rest_port}"


LINES = b"a house\r\n\n the lake \n\xff\xfe\n\nwith trees"


def test_lines_in_are_lines_out(server, url, translator_served):
    texts = ["a house", "", " the lake ", "\ufffd\ufffd", "", "with trees"]
    expected = "".join(f"{line}\n" for line in translator_served.translate(texts)).encode()
    for where in (["--url", url], ["--grpc", f"127.0.0.1:{server.port}"]):
        done = run("--model", "tiny", *where, "--batch-size", "4", input=LINES)
        assert (done.returncode, done.stdout) == (0, expected), done.stderr
        assert b"Traceback" not in done.stderr
    assert run("--model", "tiny", "--url", url).stdout == b""


def test_a_translation_with_a_new_line_in_it_is_a_line():
    with Told(METADATA, (200, {"outputs": {"translation": ["a\nb", "c\r\n", ""]}})) as told:
        done = run("--model", "tiny", "--url", told.url, input=b"x\ny\nz\n")
    assert (done.returncode, done.stdout) == (0, b"a b\nc \n\n")


def test_documents_versions_and_labels(url, translator_served):
    expected = " ".join(translator_served.translate(["A house.", "The lake"])).encode() + b"\n"
    for which in (["--version", "1"], ["--label", "stable"], []):
        done = run(
            "--model", "tiny", "--url", url, "--document", *which, input=b"A house. The lake"
        )
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_what_was_translated_before_an_error_is_there(translator_served):
    with Told(METADATA, ANSWER, (400, {"error": "enough\nof that"})) as told:
        done = run("--model", "tiny", "--url", told.url, "--batch-size", "1", input=b"a\nb\n")
    assert (done.returncode, done.stdout) == (1, b"Haus\n")
    assert done.stderr == b"python -m export.client: error: INVALID_ARGUMENT: enough of that\n"


def test_a_closed_pipe_is_no_error(url):
    command = (
        f"set -o pipefail; {sys.executable} -m export.client --model tiny --url {url} | head -1"
    )
    lines = "\n".join(tiny.sentences(200)).encode()
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, input=lines, capture_output=True, timeout=SECONDS
    )
    assert done.returncode == 0 and done.stdout.count(b"\n") == 1
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        ([], 2, "the following arguments are required: --model"),
        (["--model", "x", "--batch-size", "0"], 2, "--batch-size must be at least 1, got 0"),
        (["--model", "x", "--timeout", "0"], 2, "timeout must be positive, got 0"),
        (["--model", "x", "--retries", "-1"], 2, "retries must not be negative, got -1"),
        (["--model", "x", "--url", "ftp://x"], 2, "url must begin with http:// or https://"),
        (["--model", "x", "--version", "1", "--label", "y"], 2, "not allowed with argument"),
        (["--model", "x", "--url", "http://127.0.0.1:1", "--retries", "0"], 1, "UNAVAILABLE: "),
        (["--model", "x", "--url", "http://127.0.0.1:x", "--retries", "0"], 1, "UNAVAILABLE: "),
    ],
)
def test_a_mistake_is_one_line(arguments, code, match):
    done = run(*arguments, input=b"a\n")
    assert done.returncode == code and not done.stdout
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("python -m export.client: error: ") and match in line


BLOCKED = """
import sys
sys.modules.update(dict.fromkeys(["tensorflow", "numpy", "grpc", "tensorflow_serving", "keras"]))
from export.client import main
sys.exit(main(sys.argv[1:]))
"""


def test_rest_needs_the_standard_library_alone(url, translator_served):
    def blocked(*arguments):
        command = [sys.executable, "-c", BLOCKED, "--model", "tiny", *arguments]
        return subprocess.run(
            command, cwd=ROOT, input=b"a house", capture_output=True, timeout=SECONDS
        )

    done = blocked("--url", url)
    expected = translator_served.translate(["a house"])[0].encode() + b"\n"
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    done = blocked("--grpc", "127.0.0.1:1")
    assert done.returncode == 2
    [line] = done.stderr.decode().splitlines()
    assert "--grpc needs tensorflow-serving-api" in line


def test_help_does_not_wait_for_tensorflow():
    start = time.monotonic()
    done = run("--help", env={**os.environ, "PYTHONVERBOSE": ""})
    assert done.returncode == 0 and b"python -m export.client --model multi30k" in done.stdout
    assert time.monotonic() - start < 30
    loaded = "import sys, export.client; print('tensorflow' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False False\n"
