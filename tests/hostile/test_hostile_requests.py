"""Thousands of requests that nobody should make, to a local server in a process of its own.

Each has its answer in time, which says no more than what is wrong; the good request behind each
batch is answered as before, and what the server holds on to does not grow.
"""

import base64
import functools
import http.client
import json
import os
import random
import threading

import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from mutations import damaged, mutated_json
from server_process import MODEL, PREDICTION, ServerProcess, answers
from serving import SECONDS, add_version, make_request, wait_until
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2
from wire_requests import drips, heads, protos

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="there is no /proc")

CORE = 23  # of so many cases `make test-slow` tries one, `make test-hostile` all
COUNTS = {"bodies": 12_000, "heads": 9000, "protos": 12_000}
BATCH = 100  # cases between two good requests
MOST_MESSAGE = 1100
ROWS = 37
PATH = "/v1/models/tiny:predict"
SAMPLE = {"seed": 0, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_length": 0}
LEAST = {"seed": -(2**31), "temperature": 1e-3, "top_k": 0, "top_p": 1e-6, "max_length": 0}
MOST = {"seed": 2**31 - 1, "temperature": 1e3, "top_k": 347, "top_p": 1, "max_length": 13}
INPUTS = {
    "serving_default": {"text": str},
    "sample": {"text": str, **{name: type(value) for name, value in SAMPLE.items()}},
    "score": {"source": str, "target": str},
}
OUTPUTS = {
    "serving_default": {"translation", "score", "truncated"},
    "sample": {"translation", "log_prob", "truncated"},
    "score": {"log_prob", "length", "truncated"},
}
TEXTS = ["a little house", "by the lake", ""]
DOCUMENTS = [
    {"instances": TEXTS},
    {"instances": [{"text": text} for text in TEXTS]},
    {"instances": [{"b64": "YSBob3VzZQ=="}, "trees"]},
    {"inputs": TEXTS},
    {"inputs": {"text": TEXTS}, "signature_name": "serving_default"},
    {"signature_name": "sample", "inputs": {"text": TEXTS, **SAMPLE}},
    {"signature_name": "score", "inputs": {"source": TEXTS, "target": TEXTS[::-1]}},
    {"signature_name": "score", "instances": [{"source": text, "target": "a"} for text in TEXTS]},
    {"signature_name": "none", "instances": TEXTS},
]


@pytest.fixture(scope="module")
def server(two_models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile-server")
    base = folder / "tiny"
    base.mkdir()
    add_version(two_models / "a" / "1", base, 1, warmup=False)
    server = ServerProcess(base, folder, "--rest-timeout=10")
    try:
        yield server
        assert server.end() == 0 and "Traceback" not in server.said()
    finally:
        server.kill()


# What a body should be answered with: README of `util/json_tensor.cc`, by another way.


def wanted(body):
    """(signature, rows) of a body that is to be predicted; None if it is to be refused."""
    try:
        document = json.loads(body.decode("utf-8", "replace"))
        json.dumps(document, ensure_ascii=False).encode()  # no half of a character
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    signature = document.get("signature_name", "") or "serving_default"
    if not isinstance(signature, str) or not isinstance(document.get("signature_name", ""), str):
        return None
    keys = [key for key in ("instances", "inputs") if key in document]
    if signature not in INPUTS or len(keys) != 1:
        return None
    inputs, given = INPUTS[signature], document[keys[0]]
    rows = _by_rows(given, inputs) if keys == ["instances"] else _by_columns(given, inputs)
    return None if rows is None or rows > ROWS else (signature, rows)


def _by_rows(given, inputs):
    if not isinstance(given, list) or not given or set(inputs.values()) != {str}:
        return None  # an option has no rows
    objects = [isinstance(row, dict) and not _is_base64(row) for row in given]
    if all(objects):
        fit = all(set(row) == set(inputs) and all(map(_is_text, row.values())) for row in given)
    else:
        fit = not any(objects) and len(inputs) == 1 and all(map(_is_text, given))
    return len(given) if fit else None


def _by_columns(given, inputs):
    if not isinstance(given, dict) or _is_base64(given):
        given = {next(iter(inputs)): given} if len(inputs) == 1 else {}
    if not set(inputs) <= set(given):
        return None
    columns = [given[name] for name, kind in inputs.items() if kind is str]
    if not all(isinstance(column, list) and all(map(_is_text, column)) for column in columns):
        return None
    options = {name: kind for name, kind in inputs.items() if kind is not str}
    fit = all(_is_option(given[name], name, kind) for name, kind in options.items())
    return len(columns[0]) if fit and len({len(column) for column in columns}) == 1 else None


def _is_option(value, name, kind):
    kinds = (int,) if kind is int else (int, float)
    return type(value) in kinds and LEAST[name] <= value <= MOST[name]


def _is_base64(value):
    return isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str)


def _is_text(value):
    if not _is_base64(value):
        return isinstance(value, str)
    try:
        base64.b64decode(value["b64"], validate=True)
    except ValueError:
        return False
    return True


# The cases, and what is wrong with how the server takes one.


def bodies(count, seed=3):
    rng = random.Random(seed)
    for _ in range(count):
        document = rng.choice(DOCUMENTS)
        if rng.random() < 0.3:
            yield damaged(rng, json.dumps(document).encode())
        elif rng.random() < 0.1:
            yield damaged(rng, mutated_json(rng, document))
        else:
            yield mutated_json(rng, document)


class Bodies:
    """Asks over one connection, which no body may end."""

    def __init__(self, server):
        self._connection = functools.partial(
            http.client.HTTPConnection, "127.0.0.1", server.rest_port, timeout=SECONDS
        )
        self._open = self._connection()

    def faults(self, body):
        try:
            self._open.request("POST", PATH, body)
            answer = self._open.getresponse()
            found = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._open = self._connection()
            yield f"no answer: {error!r}"
            return
        expected = wanted(body)
        if answer.status != (400 if expected is None else 200):
            yield f"{answer.status} for {expected}: {found[:300]}"
        elif answer.status == 200:
            yield from wrong_rows(found, *expected)
        else:
            yield from wrong_error(found)

    def close(self):
        self._open.close()


def wrong_rows(found, signature, rows):
    # Bytes of a text that are no UTF-8 come to the model as they are, which replaces them.
    answer = json.loads(found.decode("utf-8"))
    [(key, value)] = answer.items()
    if key == "predictions":
        value = {name: [row[name] for row in value] for name in (value[0] if value else ())}
    if set(value) != OUTPUTS[signature] or {len(column) for column in value.values()} != {rows}:
        yield f"not {rows} rows of {signature}: {found[:300]}"


def wrong_error(found):
    try:
        [(key, message)] = json.loads(found.decode("utf-8")).items()
        message.encode("utf-8")
    except (ValueError, AttributeError) as error:
        yield f"no JSON of an error ({error!r}): {found[:300]}"
        return
    if key != "error" or not message or len(message) > MOST_MESSAGE or "Traceback" in message:
        yield f"not an error of one message: {found[:300]}"


class Heads:
    def __init__(self, server):
        self._server = server

    def faults(self, case):
        try:
            stream = self._server.by_rest(case.said, SECONDS, case.end, case.pieces)
        except TimeoutError:
            yield "no answer in time"
            return
        if stream is None or case.end in ("gone", "reset"):
            return
        try:
            found = answers(stream, case.methods)
        except ValueError as error:
            yield str(error)
            return
        for status, body in found:
            if status not in case.statuses:
                yield f"{status}, not of {case.statuses}: {body[:300]}"
            if status >= 400 and body:
                yield from wrong_error(body)
        if len(found) > case.most:
            yield f"{len(found)} answers, at most {case.most}"
        if case.least > len(found):
            yield f"{len(found)} answers, at least {case.least}"

    def close(self):
        """Each request had a connection of its own."""


# What bytes must parse as; gRPC has INTERNAL for those that do not.
KINDS = {
    PREDICTION + "Predict": predict_pb2.PredictRequest,
    PREDICTION + "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataRequest,
    MODEL + "GetModelStatus": get_model_status_pb2.GetModelStatusRequest,
}
CODES = {"OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND"}


class Protos:
    def __init__(self, server):
        self._server = server

    def faults(self, case):
        method, data, expected = case
        code, details, answer = self._server.by_grpc(method, data, SECONDS)
        if expected is None:
            expected = CODES if self._parses(method, data) else {"INTERNAL"}
        if code not in expected:
            yield f"{code}, not of {expected}: {details[:300]}"
        if len(details) > MOST_MESSAGE or "Traceback" in details or (code != "OK" and not details):
            yield f"not a message: {details[:2000]}"
        if code == "OK" and method == PREDICTION + "Predict":
            response = predict_pb2.PredictResponse.FromString(answer)
            sizes = {proto.tensor_shape.dim[0].size for proto in response.outputs.values()}
            if len(sizes) > 1 or not response.outputs:
                yield f"outputs of {sizes} rows"

    @staticmethod
    def _parses(method, data):
        try:
            KINDS[method].FromString(data)
        except DecodeError:
            return False
        return True

    def close(self):
        """The channel is the server's."""


ASKING = {"bodies": (Bodies, bodies), "heads": (Heads, heads), "protos": (Protos, protos)}


def good(server):
    """A good request's answer, by gRPC and by REST."""
    request = make_request("tiny", TEXTS).SerializeToString()
    code, details, answer = server.by_grpc(PREDICTION + "Predict", request, SECONDS)
    assert code == "OK", details
    body = json.dumps({"instances": TEXTS}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    [(status, found)] = answers(server.by_rest(head + body, SECONDS))
    assert status == 200, found
    response = predict_pb2.PredictResponse.FromString(answer)
    outputs = {key: tf.make_ndarray(proto).tolist() for key, proto in response.outputs.items()}
    rows = json.loads(found)["predictions"]
    assert [row["translation"].encode() for row in rows] == outputs["translation"]
    return outputs, rows


def resident(pid):
    """Bytes of memory that a process has."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hold(server, kind, chosen):
    """Tries the cases; the faults of all of them."""
    make, _ = ASKING[kind]
    asking, found, held = make(server), [], 0
    expected, workers, sizes = good(server), server.workers(), []
    files, threads = server.open_files(), server.threads()
    for number, case in enumerate(chosen):
        faults = [*asking.faults(case)]
        held += not faults
        found += [f"{kind} {number}: {str(case)[:600]}: {fault}" for fault in faults]
        if number % BATCH == BATCH - 1 or faults:
            assert server.alive, server.said()
            if good(server) != expected:
                found.append(f"{kind} {number}: the good request has another answer")
            sizes.append([resident(pid) for pid in (server.pid, *sorted(workers))])
    print(f"{kind}: {len(chosen)} tried, {held} held")
    asking.close()
    assert server.workers() == workers and len(workers) == 1
    wait_until(lambda: server.open_files() <= files + 3)
    wait_until(lambda: server.threads() <= threads + 16)
    early = sizes[len(sizes) // 4] if sizes else None
    for before, after in zip(early or (), sizes[-1] if sizes else (), strict=True):
        if after > 1.3 * before + 100 * 2**20:
            found.append(f"{kind}: memory {[[n >> 20 for n in size] for size in sizes]} MiB")
    if "Traceback" in server.said():
        found.append(f"{kind}: {server.said()[-3000:]}")
    return found


def cases(kind):
    return [*ASKING[kind][1](COUNTS[kind])]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ASKING)
def test_some_requests(server, kind):
    assert not hold(server, kind, cases(kind)[::CORE])


@pytest.mark.hostile
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", ASKING)
def test_all_requests(server, kind, part):
    assert not hold(server, kind, cases(kind)[part::3])


@pytest.mark.hostile
def test_requests_that_drip(server):
    """Many at once; each ends with its time, and meanwhile others are served."""
    expected, found = good(server), {}

    def drip(name, at_once, dripping):
        found[name] = server.drip(at_once, dripping, SECONDS)

    threads = [threading.Thread(target=drip, args=case) for case in drips()]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert good(server) == expected
        threads[0].join(0.5)
    for name, stream in found.items():
        statuses = [status for status, _ in answers(stream or b"")]
        assert statuses in ([], [408]), name
    print(f"drips: {len(found)} tried, {len(found)} held")
