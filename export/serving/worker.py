"""The process of a loaded version: a C++ session without Python TensorFlow, asked over a pipe.

The server loads in its own process (`servables/tensorflow/saved_model_bundle_factory.cc`). Here, a
version that is unloaded gives all its memory back, and one that crashes takes nobody with it.
"""

import concurrent.futures
import itertools
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from export.capi.job import ROOT, child_environment, how_it_ended, pass_on
from export.capi.library import ServingError
from export.capi.session import ServingSession

# Requests that the session runs at the same time; the others wait.
MOST_RUNS = 64
# Seconds for what a process that has ended wrote before: longer only if a child of it lives on.
PATIENCE = 5


class Worker:
    """A `ServingSession` in a process of its own; `run` may be called by many threads at once.

    Args:
        directory: the SavedModel.
        intra_op_threads, inter_op_threads, xla: see `ServingSession`.

    Raises:
        ServingError: the SavedModel does not load.
    """

    def __init__(self, directory, intra_op_threads=None, inter_op_threads=None, xla=False):
        options = {
            "intra_op_threads": intra_op_threads,
            "inter_op_threads": inter_op_threads,
            "xla": xla,
        }
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "export.serving.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=child_environment(log_level=3),
        )
        theirs.close()
        said = self._process.stderr
        self._passing = threading.Thread(target=pass_on, args=[said], daemon=True)
        self._passing.start()
        self._lock, self._numbers, self._waiting = threading.Lock(), itertools.count(), {}
        self._ended = None
        try:
            self._pipe.send((str(Path(directory).resolve()), options))
            loaded = self._pipe.recv()
        except (EOFError, OSError):
            raise self._how_it_ended() from None
        if isinstance(loaded, ServingError):
            self.close()
            raise loaded
        threading.Thread(target=self._receive, daemon=True).start()

    @property
    def pid(self):
        """The number of its process."""
        return self._process.pid

    @property
    def alive(self):
        return self._process.poll() is None

    @property
    def peak_bytes(self):
        """The most memory that its process has had so far, what it shares with others included."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        [kibibytes] = re.findall(r"(?m)^VmHWM:\s+(\d+) kB$", status)
        return 1024 * int(kibibytes)

    def run(self, feeds, fetches, timeout=None):
        """See `ServingSession.run`; `timeout` in seconds, default: none."""
        result = concurrent.futures.Future()
        number = next(self._numbers)
        with self._lock:
            if self._ended:
                raise self._ended
            self._waiting[number] = result
            try:
                self._pipe.send((number, feeds, fetches, timeout))
            except OSError:  # its end is read by `_receive`, which answers everybody
                pass
        return result.result()

    def close(self):
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._passing.join(PATIENCE)

    def _receive(self):
        """Hands each answer to whoever waits for it; at the end, the reason to all of them."""
        while True:
            try:
                number, answer = self._pipe.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                result = self._waiting.pop(number)
            if isinstance(answer, ServingError):
                result.set_exception(answer)
            else:
                result.set_result(answer)
        error = self._how_it_ended()
        with self._lock:
            self._ended, waiting = error, list(self._waiting.values())
            self._waiting.clear()
        self._pipe.close()
        for result in waiting:
            result.set_exception(error)

    def _how_it_ended(self):
        how = how_it_ended(self._process.wait())
        self._passing.join(PATIENCE)  # its last words come first
        return ServingError("UNAVAILABLE", f"the process of the model {how}")


def main(descriptor):
    """The process: answers runs until the other end of the pipe is closed."""
    pipe = multiprocessing.connection.Connection(int(descriptor))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the server says when to end
    directory, options = pipe.recv()
    try:
        session = ServingSession(directory, **options)
    except ServingError as error:
        pipe.send(error)
        return
    pipe.send("loaded")
    lock = threading.Lock()

    def answer(number, feeds, fetches, timeout):
        try:
            result = session.run(feeds, fetches, timeout)
        except ServingError as error:
            result = error
        except Exception as error:  # whoever asked must get an answer, and the others theirs
            result = ServingError("INTERNAL", f"{type(error).__name__}: {error}")
        with lock:
            try:
                pipe.send((number, result))
            except OSError:
                os._exit(0)

    with concurrent.futures.ThreadPoolExecutor(MOST_RUNS) as threads:
        while True:
            try:
                call = pipe.recv()
            except (EOFError, OSError):
                os._exit(0)  # nobody waits for what still runs
            threads.submit(answer, *call)


if __name__ == "__main__":
    main(sys.argv[1])
