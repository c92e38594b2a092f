"""Many clients for the local server: measures the latency of requests and checks the answers.

The server has its own process, and another one for the model. The clients are threads of this
process, where a request costs little compared with a translation.
"""

import concurrent.futures
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.peers.protocol import machine_seconds
from benchmarks.workers import ENVIRONMENT, ROOT
from export.client import GrpcClient, RequestError, RestClient
from export.serving.worker import Worker
from export.verification.graph import text_signature

MODEL = "model"  # its name on the server
TOLERANCE = 1e-4  # of a score
PORTS = re.compile(r"gRPC at (\S+:\d+), REST at (\S+:\d+)")  # its message when it listens
PATIENCE = 30  # seconds that a server has to end


class LoadError(Exception):
    """The server does not start or does not answer. The message is one line."""


@dataclass
class Load:
    """The measurements of several clients.

    Attributes:
        clients: the number of clients.
        seconds: the measured time.
        milliseconds: the latency of each request answered in that time.
        answers: the number of answers, warm-up included.
        different: the number of wrong answers, warm-up included.
        errors: the errors instead of translations, warm-up included.
        foreign: cores that other processes used in that time.
        own, server: cores that this process with its clients used, and the server's processes.
    """

    clients: int
    seconds: float
    milliseconds: list[float] = field(default_factory=list)
    answers: int = 0
    different: int = 0
    errors: list[str] = field(default_factory=list)
    foreign: float = 0.0
    own: float = 0.0
    server: float = 0.0

    def row(self):
        """The figures of the report by name.

        Raises:
            LoadError: nothing was answered.
        """
        if not self.milliseconds:
            why = self.errors[0] if self.errors else f"nothing within {self.seconds:g} seconds"
            raise LoadError(f"no answer to {self.clients} clients: {why}")
        p50, p95, p99 = (float(value) for value in np.percentile(self.milliseconds, [50, 95, 99]))
        return {
            "clients": self.clients,
            "requests_a_second": len(self.milliseconds) / self.seconds,
            "p50_ms": p50,
            "p95_ms": p95,
            "p99_ms": p99,
            "answers": self.answers,
            "errors": len(self.errors),
            "first_error": self.errors[0] if self.errors else None,
            "different": self.different,
            "foreign": self.foreign,
            "own": self.own,
            "server": self.server,
        }


class Server:
    """`export.local_server` in a separate process. The constructor returns when it is ready.

    Args:
        base: a base directory; the model's name is `MODEL`.
        batching: the file of `--batching`. Default None: requests are not joined.
        cores: the number of parallel operations. One operation has one thread.

    Attributes:
        process_id: the id of the process.

    Raises:
        LoadError: it does not start; the message is its last line.
    """

    def __init__(self, base, batching=None, cores=1):
        self._log = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "export.local_server", base, "--name", MODEL]
        command += ["--port", 0, "--rest-port", 0, "--intra-op-threads", 1]
        command += ["--inter-op-threads", cores]
        command += ["--batching", Path(batching).resolve()] if batching else []
        self._process = subprocess.Popen(
            [str(part) for part in command], cwd=ROOT, env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._log,
        )  # fmt: skip
        self.process_id = self._process.pid
        try:
            while not (ports := PORTS.search(self._said())):
                if self._process.poll() is not None:
                    last = self._said().strip().splitlines()[-1:]
                    raise LoadError(": ".join(["the server does not start", *last]))
                time.sleep(0.05)
        except BaseException:
            self.close()
            raise
        self._grpc, self._rest = ports.groups()

    def client(self, rest=False):
        """A `Client` of its model that does not repeat requests."""
        if rest:
            return RestClient(MODEL, f"http://{self._rest}", retries=0)
        return GrpcClient(MODEL, self._grpc, retries=0)

    def close(self):
        """Ends it. A second call does nothing."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _said(self):
        return os.pread(self._log.fileno(), 2**20, 0).decode(errors="replace")


def link_version(path, base, warm_up=True):
    """The SavedModel `path` as version 1 of the new base directory `base`, by links.

    Without `warm_up`, it has no warm-up requests. Some of them contain scalars. A server that joins
    requests refuses these, and with them the version.
    """
    version = Path(base, "1")
    version.mkdir(parents=True)
    for part in Path(path).resolve().iterdir():
        if warm_up or part.name != "assets.extra":
            (version / part.name).symlink_to(part)
    return Path(base)


def translate_alone(path, texts):
    """[(translation, score)] of texts translated alone, one by one, by one thread.

    Raises:
        UsageError: the SavedModel has no `serving_default` of one text.
        ServingError: it does not load, or refuses a text.
    """
    signature = text_signature(path)
    fetches = [signature.outputs[name].name for name in ("translation", "score")]
    worker, found = Worker(path, intra_op_threads=1, inter_op_threads=1), []
    try:
        for text in texts:
            feeds = {signature.inputs["text"].name: np.array([text.encode()], object)}
            [translation], [score] = worker.run(feeds, fetches)
            found.append((translation.decode(errors="replace"), float(score)))
    finally:
        worker.close()
    return found


def measure(server, texts, expected, clients, seconds, warm_up, rest=False):
    """The `Load` of several clients. Each sends one text after the other.

    Args:
        server: the `Server`.
        texts: each client sends all of them repeatedly, from its own starting point.
        expected: (translation, score) of each.
        clients: the number of clients.
        seconds, warm_up: the measured seconds, and the seconds before them.
        rest: whether to use REST instead of gRPC.
    """
    asking = [server.client(rest) for _ in range(clients)]
    with contextlib.suppress(RequestError):  # The clients get the same error and count it.
        asking[0].predict({"text": texts[:1]})  # The first run of a model takes seconds.
    first = time.monotonic() + warm_up
    end, stop = first + seconds, threading.Event()
    with concurrent.futures.ThreadPoolExecutor(clients) as threads:
        loads = [
            threads.submit(
                _ask, client, texts, expected, n * len(texts) // clients, first, end, stop
            )
            for n, client in enumerate(asking)
        ]
        try:
            time.sleep(max(0.0, first - time.monotonic()))
            own, busy = _processor_seconds(server), machine_seconds()
            time.sleep(max(0.0, end - time.monotonic()))
            own = [
                after - before
                for after, before in zip(_processor_seconds(server), own, strict=True)
            ]
            busy = machine_seconds() - busy
        finally:
            stop.set()
        total = Load(clients, seconds, own=own[0] / seconds, server=own[1] / seconds)
        total.foreign = max(0.0, (busy - sum(own)) / seconds)
        for load in (load.result() for load in loads):
            total.milliseconds += load.milliseconds
            total.answers += load.answers
            total.different += load.different
            total.errors += load.errors
    for client in asking:
        if not rest:
            client.close()
    return total


def _ask(client, texts, expected, place, first, end, stop):
    """Runs a client. Returns its `Load`."""
    own = Load(1, end - first)
    while (start := time.monotonic()) < end and not stop.is_set():
        number = place % len(texts)
        place += 1
        try:
            outputs = client.predict({"text": [texts[number]]})
        except RequestError as error:
            own.errors.append(str(error))
            continue
        now = time.monotonic()
        if first <= now < end:
            own.milliseconds.append(1000 * (now - start))
        own.answers += 1
        own.different += not is_same(outputs, *expected[number])
    return own


def is_same(outputs, translation, score):
    """Whether an answer to one text is this translation with this score."""
    return outputs["translation"] == [translation] and abs(outputs["score"][0] - score) <= TOLERANCE


def _processor_seconds(server):
    """Of this process, and of the server's."""
    return time.process_time(), machine.processor_seconds(server.process_id)
