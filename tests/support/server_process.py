"""The local server as a process of its own: its memory, its threads and its last words."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import grpc
from paths import ROOT
from serving import wait_until

PREDICTION = "/tensorflow.serving.PredictionService/"
MODEL = "/tensorflow.serving.ModelService/"


class ServerProcess:
    """`python -m export.local_server BASE`, ready for requests.

    Args:
        base: the base directory.
        folder: where its standard error goes.
        arguments: further ones.

    Attributes:
        pid, port, rest_port: of the process, and what it listens on.
    """

    def __init__(self, base, folder, *arguments):
        self._said = Path(folder) / "stderr"
        command = [sys.executable, "-m", "export.local_server", base, "--port=0", "--rest-port=0"]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [str(part) for part in (*command, *arguments)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
            )
        self.pid = self._process.pid
        try:
            pattern = r"gRPC at 127.0.0.1:(\d+), REST at 127.0.0.1:(\d+)"
            found = wait_until(lambda: re.search(pattern, self.said()) or not self.alive)
            assert self.alive, self.said()
        except BaseException:
            self.kill()
            raise
        self.port, self.rest_port = map(int, found.groups())
        self.channel = grpc.insecure_channel(
            f"127.0.0.1:{self.port}", options=[("grpc.max_receive_message_length", -1)]
        )

    def said(self):
        """Its standard error."""
        return self._said.read_text(errors="replace")

    @property
    def alive(self):
        return self._process.poll() is None

    def workers(self):
        """The numbers of its children: one a loaded version."""
        found = set()
        for task in self._tasks():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread has ended
                found |= {int(number) for number in (task / "children").read_text().split()}
        return found

    def _tasks(self):
        return Path("/proc", str(self.pid), "task").iterdir()

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self):
        return len(list(self._tasks()))

    def end(self, seconds=60):
        """Its exit code after a SIGTERM. One that goes on says where its threads stand."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait(seconds)
            raise AssertionError(f"it did not end in {seconds} s:\n{self.said()}") from None

    def kill(self):
        if hasattr(self, "channel"):
            self.channel.close()
        if self.alive:
            children = self.workers()
            self._process.kill()
            self._process.wait()
            for child in children:  # they end by themselves when their pipe is closed
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def by_rest(self, said, seconds, end="shut", pieces=1):
        """All that is answered until the connection is closed; None: it was reset.

        Args:
            said: bytes that are sent.
            seconds: in which all of it must have happened; else a TimeoutError.
            end: what comes behind `said`: "shut" closes our direction, "wait" waits for the
                server to close, "gone" closes at once and reads nothing, "reset" too, by a reset.
            pieces: in how many it is sent.
        """
        client = socket.create_connection(("127.0.0.1", self.rest_port), timeout=seconds)
        answer = bytearray()
        with client:
            try:
                size = -(-len(said) // pieces) or 1
                for start in range(0, len(said), size):
                    client.sendall(said[start : start + size])
                if end == "shut":
                    client.shutdown(socket.SHUT_WR)
                if end == "reset":
                    linger = b"\x01\0\0\0\0\0\0\0"
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                while end in ("shut", "wait") and (piece := client.recv(2**20)):
                    answer += piece
            except ConnectionError:  # the server has closed while we spoke
                return bytes(answer) or None
        return bytes(answer)

    def drip(self, at_once, dripping, seconds):
        """What is answered to bytes of which the later ones come two a second."""
        end, answer = time.monotonic() + seconds, b""
        with socket.create_connection(("127.0.0.1", self.rest_port)) as client:
            client.settimeout(0.5)
            try:
                client.sendall(at_once)
                for byte in dripping:
                    assert time.monotonic() < end, "it drips for ever"
                    client.sendall(bytes([byte]))
                    with contextlib.suppress(TimeoutError):
                        piece = client.recv(2**16)
                        if not piece:
                            break
                        answer += piece
            except ConnectionError:
                pass
        return answer

    def by_grpc(self, method, request, seconds, **options):
        """(the name of the status, its details, the answer) of bytes that are a request."""
        call = self.channel.unary_unary(method)
        try:
            return "OK", "", call(request, timeout=seconds, **options)
        except grpc.RpcError as error:
            return error.code().name, error.details() or "", b""


def answers(stream, methods=()):
    """[(status, body)] of what a connection has answered; a ValueError if that is no HTTP.

    Args:
        stream: bytes.
        methods: of the requests; the answer to a HEAD has no body, unless it could not be read.
    """
    found, methods = [], [*methods]
    while stream:
        head, end, rest = stream.partition(b"\r\n\r\n")
        match = re.match(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n", head + b"\r\n")
        if not match or not end:
            raise ValueError(f"no head: {stream[:200]!r}")
        lengths = re.findall(rb"(?im)^content-length: (\d+)\r?$", head)
        status = int(match[1])
        if status == 100:
            stream = rest
            continue
        if len(lengths) != 1:
            raise ValueError(f"no length: {head[:200]!r}")
        bare = methods and methods.pop(0) == "HEAD" and not (rest and status in (400, 414))
        size = 0 if bare else int(lengths[0])
        if len(rest) < size:
            raise ValueError(f"cut: {len(rest)} bytes of {size}")
        found.append((status, rest[:size]))
        stream = rest[size:]
    return found
