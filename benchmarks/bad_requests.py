"""Makes malformed requests and shows the answers: `python -m benchmarks.bad_requests`.

    python -m benchmarks.bad_requests exported/dates

Each request is made by gRPC and by REST to `export.local_server`, followed by a good one. Standard
output gets a table in Markdown: the request, the status of both, and the milliseconds. The one
document of 8 MB may take minutes.

DIRECTORY is what `export.saved_model` wrote into; the limits are those of its newest report.

Exit codes: 0 every status is the documented one, and every good request was served; 1 one was not;
2 wrong usage; 130 interrupted.
"""

import base64
import dataclasses
import json
import sys
import time
import urllib.request
from pathlib import Path

from export.remote import transport
from tfformer.terminal.command import Parser, main_of

SECONDS = 300  # The maximum time of a request: a document has the length of 64 maximum sources.
OK, INVALID = ("OK", 200), ("INVALID_ARGUMENT", 400)
BEAM_OPTIONS = {
    "beam_width": 4,
    "length_penalty": 0.6,
    "max_length": 0,
    "min_length": 0,
    "max_length_factor": 0.0,
    "coverage_penalty": 0.0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram": 0,
}
SAMPLE_OPTIONS = {"seed": 0, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_length": 0}
HUGE, NAN = 2**31 - 1, float("nan")


@dataclasses.dataclass(frozen=True)
class Case:
    """A request and the expected answer.

    Attributes:
        what: its description.
        inputs: {name: bytes, a number, or nested lists of them}.
        signature: the name of the signature.
        status: the name of gRPC's status, and REST's number.
        dtypes: dtypes of inputs that differ from the signature's types.
    """

    what: str
    inputs: dict
    signature: str = "serving_default"
    status: tuple = INVALID
    dtypes: dict = dataclasses.field(default_factory=dict)


def cases(max_batch_size, max_source_length, max_target_length):
    """All requests, for a model with these limits."""
    text = {"text": [b"a"]}
    pair = {"source": [b"a"], "target": [b"b"]}
    beam = {**text, **BEAM_OPTIONS}
    yield Case("a signature that does not exist", text, "translate", ("FAILED_PRECONDITION", 400))
    yield Case("no input", {})
    yield Case("an input missing", {"source": [b"a"]}, "score")
    yield Case(
        "an input that does not exist", {**text, "texts": [b"a"]}, status=("INVALID_ARGUMENT", 200)
    )
    yield Case("an input of another name", {"texts": [b"a"]})
    # REST converts numbers to the signature's types. It refuses an integer for a string too.
    yield Case("int32 for text", {"text": [5]}, dtypes={"text": "int32"})
    yield Case("float32 for text", {"text": [0.5]}, dtypes={"text": "float32"})
    yield Case("complex64 for text", {"text": [7]}, dtypes={"text": "complex64"})
    yield Case(
        "a string for beam_width", {**beam, "beam_width": b"4"}, "beam_search",
        dtypes={"beam_width": "string"},
    )  # fmt: skip
    yield Case(
        "float32 for beam_width", {**beam, "beam_width": 4.5}, "beam_search",
        dtypes={"beam_width": "float32"},
    )  # fmt: skip
    yield Case("text of rank 0", {"text": b"a"})
    yield Case("text of rank 2", {"text": [[b"a", b"b"]]})
    yield Case("source_ids of rank 1", {"source_ids": [5, 6, 3], **BEAM_OPTIONS}, "beam_search_ids")
    yield Case("beam_width of rank 1", {**beam, "beam_width": [4]}, "beam_search")
    yield Case("temperature of rank 1", {**text, **SAMPLE_OPTIONS, "temperature": [1.0]}, "sample")
    yield Case("source and target of different size", {**pair, "target": [b"a", b"b"]}, "score")
    yield Case("text and prefix of different size", {**text, "prefix": [b"a", b"b"]}, "complete")
    yield Case("source and target of different size, align", {**pair, "source": []}, "align")

    none = {"text": []}
    yield Case("no rows", none, status=OK)
    yield Case("no rows, document", none, "translate_document", OK)
    yield Case("no rows, beam_search", {**none, **BEAM_OPTIONS}, "beam_search", OK)
    yield Case("no rows, sample", {**none, **SAMPLE_OPTIONS}, "sample", OK)
    yield Case("no rows, score", {"source": [], "target": []}, "score", OK)
    yield Case("no rows, complete", {"text": [], "prefix": []}, "complete", OK)
    yield Case("no rows, align", {"source": [], "target": []}, "align", OK)
    many = [b"a"] * (max_batch_size + 1)
    yield Case("a row too many", {"text": many})
    yield Case("a row too many, document", {"text": many}, "translate_document")
    yield Case("a row too many, score", {"source": many, "target": many}, "score")
    yield Case(
        "rows times beam_width too many",
        {**beam, "text": many[1:], "beam_width": 64},
        "beam_search",
    )

    outside = {
        "beam_width": (0, 65, -1),
        "length_penalty": (-0.1, 10.1, NAN),
        "max_length": (-1, max_target_length + 1),
        "min_length": (-1, max_target_length + 1),
        "max_length_factor": (-0.1, 100.1, NAN),
        "coverage_penalty": (-0.1, 10.1, NAN),
        "repetition_penalty": (0.9, 100.1, NAN),
        "no_repeat_ngram": (-1, 9),
    }
    for name, values in outside.items():
        for value in values:
            yield Case(f"{name} {value}", {**beam, name: value}, "beam_search")
    ids = {"source_ids": [[5, 6, 3]], **BEAM_OPTIONS}
    yield Case("beam_width 65, beam_search_ids", {**ids, "beam_width": 65}, "beam_search_ids")
    for name, values in {
        "temperature": (0.0, 1001.0, NAN),
        "top_k": (-1, HUGE),
        "top_p": (0.0, 1.1, NAN),
        "max_length": (-1, max_target_length + 1),
    }.items():
        for value in values:
            inputs = {**text, **SAMPLE_OPTIONS, name: value}
            yield Case(f"{name} {value}, sample", inputs, "sample")
    for what, row in (
        ("a negative id", [5, -1, 3]),
        ("an id over the vocabulary", [5, HUGE, 3]),
        ("more ids than a source may have", [5] * max_source_length + [3]),
    ):
        yield Case(what, {**ids, "source_ids": [row]}, "beam_search_ids")

    for what, odd in ODD_TEXTS.items():
        yield Case(what, {"text": [odd]}, status=OK)
    for what in ("nothing", "8 MB of words", "bytes that are not UTF-8"):
        yield Case(f"{what}, document", {"text": [ODD_TEXTS[what]]}, "translate_document", OK)
    for what in ("nothing", "blanks", "8 MB of words", "NUL", "bytes that are not UTF-8"):
        odd = ODD_TEXTS[what]
        yield Case(f"{what}, score", {"source": [odd], "target": [odd]}, "score", OK)
        yield Case(f"{what}, complete", {"text": [odd], "prefix": [odd]}, "complete", OK)
        yield Case(f"{what}, align", {"source": [odd], "target": [odd]}, "align", OK)
        yield Case(f"{what}, sample", {"text": [odd], **SAMPLE_OPTIONS}, "sample", OK)


ODD_TEXTS = {
    "nothing": b"",
    "blanks": " \t\u00a0\u3000\u2028 ".encode(),
    "bytes that are not UTF-8": bytes(range(256)),
    "half a character": "é".encode()[:1],
    "an encoded surrogate": b"a \xed\xa0\x80 b",
    "NUL": b"a\x00b\x00",
    "control characters": bytes([*range(1, 32), 127]),
    "bidi and invisible characters": "\u202eabc\u202c \u2066x\u2069 \u200b\ufeff\u200d".encode(),
    "emoji": "👩‍👩‍👧‍👦 🎉🏳️‍🌈 🇩🇪".encode(),
    "a hundred marks on one letter": ("a" + "\u0301" * 100).encode(),
    "noncharacters": "\ufffe\uffff\U0010ffff".encode(),
    "1 MB of one letter": b"a" * 2**20,
    "8 MB of one letter": b"a" * 2**23,
    "8 MB of words": b"a little house " * (2**23 // 15),
    "1 MB of emoji": "🎉".encode() * 2**18,
    "1 MB of bytes that are not UTF-8": b"\xff" * 2**20,
    "1 MB of new lines": b"\n" * 2**20,
    "brackets 100,000 deep": b"(" * 10**5 + b")" * 10**5,
}


class Asker:
    """Makes requests to a model by gRPC and by REST.

    Args:
        port, rest_port: the ports of the server on this machine.
        model: the model's name.
        graph: the model's `export.verification.graph.Graph`, for the types of inputs.
    """

    def __init__(self, port, rest_port, model, graph):
        import grpc
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        self._model, self._graph = model, graph
        self._url = f"http://127.0.0.1:{rest_port}/v1/models/{model}:predict"
        address = f"127.0.0.1:{port}"
        self._channel = grpc.insecure_channel(address, transport.channel_options(address))
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def grpc(self, case):
        """(the name of the status, its message or the outputs)."""
        import grpc
        import numpy as np
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name = self._model
        request.model_spec.signature_name = case.signature
        signature = self._graph.signatures.get(case.signature)
        for name, value in case.inputs.items():
            known = signature.inputs[name].dtype if signature and name in signature.inputs else None
            dtype = case.dtypes.get(name) or known or "string"
            array = np.array(value, object if dtype == "string" else dtype)
            request.inputs[name].CopyFrom(tf.make_tensor_proto(array, dtype, array.shape))
        try:
            response = self._stub.Predict(request, timeout=SECONDS)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return "OK", {name: tf.make_ndarray(proto) for name, proto in response.outputs.items()}

    def rest(self, case):
        """(the status, its message or the outputs)."""
        body = json.dumps({"signature_name": case.signature, "inputs": _as_json(case.inputs)})
        status, answer = transport.ask(urllib.request.Request(self._url, body.encode()), SECONDS)
        return status, json.loads(answer)["outputs" if status == 200 else "error"]

    def close(self):
        self._channel.close()


def _as_json(value):
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


GOOD = Case("a good request", {"text": [b"a"]}, status=OK)


def measure(asker, case):
    """The result of a case: {"what", "status", "seconds", "good"}, each by gRPC and by REST."""
    status, seconds, good = [], [], []
    for ask in (asker.grpc, asker.rest):
        start = time.perf_counter()
        status.append(ask(case)[0])
        seconds.append(time.perf_counter() - start)
        good.append(ask(GOOD)[0])
    return {
        "what": case.what,
        "signature": case.signature,
        "status": tuple(status),
        "seconds": tuple(seconds),
        "right": tuple(status) == case.status and tuple(good) == OK,
    }


def markdown(rows):
    """The table."""
    lines = [
        "| request | signature | gRPC | REST | ms by gRPC / by REST |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        times = " / ".join(f"{1e3 * seconds:,.0f}" for seconds in row["seconds"])
        grpc, rest = row["status"]
        mark = "" if row["right"] else " **not as documented**"
        lines.append(f"| {row['what']} | `{row['signature']}` | {grpc} | {rest}{mark} | {times} |")
    return "\n".join(lines)


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.bad_requests", __doc__)
    parser.add_argument("directory", type=Path, help="the base directory of a model")
    return parser


def _run(command, options):
    from benchmarks import machine
    from export.local_server import LocalServer
    from export.serving.versions import one_model, warn
    from export.verification.graph import UsageError, read_graph
    from export.verification.paths import find_saved_model

    try:
        version = find_saved_model(options.directory)
        report = json.loads(version.with_name(f"{version.name}.report.json").read_text())
        limits = report["deployment"]["limits"]
        names = ("max_batch_size", "max_source_length", "max_target_length")
        wanted = list(cases(*[limits[name] for name in names]))
    except (UsageError, OSError, ValueError, KeyError, TypeError) as error:
        return command.fail(f"DIRECTORY must be what export.saved_model wrote into: {error}", 2)
    rows = []
    config = one_model("model", options.directory.resolve())
    with LocalServer(config, rest_timeout=SECONDS, say=warn) as server:
        asker = Asker(server.port, server.rest_port, "model", read_graph(version))
        for case in wanted:
            print(case.what, file=sys.stderr)
            rows.append(measure(asker, case))
        asker.close()
    print(f"{machine.sentence(machine.describe())}.\n\n{markdown(rows)}")
    wrong = [row["what"] for row in rows if not row["right"]]
    return command.fail(f"not as documented: {', '.join(wrong)}") if wrong else 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
