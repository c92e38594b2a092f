"""Thousands of answers that no server should give, to `export.client` by REST and by gRPC.

What it prints with exit code 0 is what was answered, a line for each text; else it is one line of
an error and exit code 1, behind whole rows of what was good.
"""

import concurrent.futures
import contextlib
import io
import json
import os
import subprocess
import sys
import time
import traceback

import grpc
import pytest
from google.protobuf.message import DecodeError
from hostile import SERVICE, Raw, http
from paths import ROOT
from tensorflow_serving.apis import predict_pb2
from wire_answers import BATCHES, drips, good, message, messages, played

from export import client

CORE = 23  # of so many cases `make test-slow` tries one, `make test-hostile` all
COUNTS = {"rest": 16_000, "grpc": 12_000}
MARGIN = 60  # seconds that a client may be late: the machine is shared
LINES = b"a\nb\nc\nd\ne\n"
LONGEST = 700  # characters of an error's line
PREFIX = "python -m export.client: error: "
ARGUMENTS = ["--model", "tiny", "--retries", "0", "--batch-size", "2"]


def lines_of(batches):
    return [text for batch in batches for text in batch]


def ask(*arguments):
    """(exit code, standard output, standard error) of the command, in this process."""
    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(LINES))
    sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    try:
        code = client.main([*ARGUMENTS, *arguments])
        sys.stdout.flush()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # of any type: it is the fault
        code = traceback.format_exc()
    finally:
        output, error = sys.stdout.buffer.getvalue(), sys.stderr.getvalue()
        sys.stdin, sys.stdout, sys.stderr = streams
    return code, output, error


def ask_process(*arguments):
    command = [sys.executable, "-m", "export.client", *ARGUMENTS, *arguments]
    done = subprocess.run(command, input=LINES, capture_output=True, cwd=ROOT, timeout=300)
    return done.returncode, done.stdout, done.stderr.decode()


def faults(place, found, reading, fails):
    """What is wrong with what the client said.

    Args:
        place: of the answer that was changed; those before it were good.
        found: what `ask` gives.
        reading: the translations that the answer holds; None if it holds none.
        fails: whether it cannot be taken for an answer.
    """
    code, output, error = found
    rows, end = output.decode().split("\n")[:-1], output[-1:]
    before = lines_of(BATCHES[: max(place - 1, 0)])
    if end not in (b"", b"\n"):
        yield f"half a row: {output!r}"
    if code == 0:
        expected = lines_of(BATCHES)
        if place:
            expected = [*before, *(reading or ["?"]), *lines_of(BATCHES[place:])]
        if fails or rows != expected or error:
            yield f"exit code 0 and {rows}, not {expected}: {error}"
        return
    lines = error.splitlines()
    if code != 1 or rows != before:
        yield f"exit code {code} and {rows}, not {before}: {error[:500]}"
    if len(lines) != 1 or not lines[0].startswith(PREFIX) or "Traceback" in error:
        yield f"{len(lines)} lines: {error[:500]!r}"
    elif not lines[0].isprintable() or len(lines[0]) > LONGEST:
        yield f"no line for a terminal: {lines[0][:1000]!r}"


def read_json(body):
    """What stands at the beginning of a body; by another way than the client's."""
    try:
        found, _ = json.JSONDecoder().raw_decode(body.decode(errors="replace"))
        texts = found["outputs"]["translation"]
        return [text.replace("\r", " ").replace("\n", " ") for text in texts]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def rest_faults(case, how=ask):
    answers = [http(good(place)) for place in range(len(BATCHES) + 1)]
    answers[case.place] = case.answer
    # A redirection leads to itself.
    last = case.reset or case.pause is not None or case.kind == "redirect"
    answers = answers[: case.place + 1] if last else answers
    start = time.monotonic()
    with Raw(*answers, pause=case.pause, reset=case.reset) as raw:
        found = how("--url", raw.url, "--timeout", str(case.timeout))
    if time.monotonic() - start > case.timeout + MARGIN:
        yield f"it took {time.monotonic() - start:.0f} seconds"
    reading = read_json(case.body) if case.place and case.body else None
    yield from faults(case.place, found, reading, case.fails)


class Playing(grpc.GenericRpcHandler):
    """A server that answers by gRPC with what `case` says, and else well."""

    def __init__(self):
        self._good = [message(place).SerializeToString() for place in range(len(BATCHES) + 1)]
        self.begin(None)

    def begin(self, case):
        self.case, self.asked = case, 0

    def service(self, details):
        def answer(_, context):
            place = 0
            if details.method == SERVICE + "Predict":
                self.asked += 1
                place = self.asked
            if self.case is None or place != self.case.place:
                return self._good[place]
            if isinstance(self.case.answer, tuple):
                context.abort(*self.case.answer)
            return self.case.answer

        return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.contextmanager
def playing():
    """(a `Playing`, its address)."""
    handler = Playing()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), handlers=[handler])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield handler, address
    finally:
        server.stop(0).wait()


def read_message(answer):
    """The translations of a PredictResponse whose tensor says what it has."""
    try:
        proto = predict_pb2.PredictResponse.FromString(answer).outputs["translation"]
    except DecodeError:
        return None
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    texts = [text.decode(errors="replace") for text in proto.string_val]
    if sizes != [len(texts)] or proto.dtype != 7 or proto.tensor_shape.unknown_rank:
        return None
    return [text.replace("\r", " ").replace("\n", " ") for text in texts]


def grpc_faults(case, handler, address, how=ask):
    handler.begin(case)
    found = how("--grpc", address)
    refused = isinstance(case.answer, tuple)
    reading = None if refused or not case.place else read_message(case.answer)
    yield from faults(case.place, found, reading, refused)


def hold(kind, chosen, how=ask):
    """Tries the cases; the faults of all of them."""
    found, held = [], 0
    with playing() as (handler, address):
        for number, case in enumerate(chosen):
            if kind == "grpc":
                wrong = [*grpc_faults(case, handler, address, how)]
            else:
                wrong = [*rest_faults(case, how)]
            held += not wrong
            found += [f"{kind} {number}, {case}: {fault}" for fault in wrong]
    print(f"{kind}: {len(chosen)} tried, {held} held")
    return found


def cases(kind):
    return [*(messages if kind == "grpc" else played)(COUNTS[kind])]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Without the proxies of this machine, and the words of gRPC's library."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")


@pytest.mark.slow
@pytest.mark.parametrize("kind", COUNTS)
def test_some_answers(kind):
    assert not hold(kind, cases(kind)[::CORE])


@pytest.mark.hostile
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("kind", COUNTS)
def test_all_answers(kind, part):
    assert not hold(kind, cases(kind)[part::2])


@pytest.mark.hostile
def test_answers_that_drip():
    assert not hold("drips", [*drips()])


@pytest.mark.hostile
@pytest.mark.parametrize("kind", COUNTS)
def test_a_process_says_the_same(kind):
    chosen = cases(kind)[:: COUNTS[kind] // 16]
    assert not hold(kind, chosen, ask_process)
