"""Runs a loaded version in its own process: a C++ session without Python TensorFlow, over a pipe.

The stock server loads a version into the server process
(`servables/tensorflow/saved_model_bundle_factory.cc`). With a process per version, unloading
frees all of its memory, and a crash does not stop the server or other versions.
"""

import concurrent.futures
import itertools
import multiprocessing
import multiprocessing.connection
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ..capi.job import child_environment, how_it_ended, pass_on
from ..capi.library import ServingError, as_serving_error
from ..capi.session import ServingSession
from .deadline import Deadline

PROC = Path("/proc")
# Requests that the session runs at the same time. More requests wait.
MAX_RUNS = 64
# Seconds to read the last output of a process that has ended. Only a living child process of it
# could hold the stream open for longer.
PATIENCE = 5
# Seconds to wait for a run after its deadline: the session stops the run itself and gives the
# reason.
GRACE = 2
# STANDSTILL: seconds without an answer after which a process is killed. LOOK: the maximum number
# of seconds counted between two calls of `beat`, because the caller may have been suspended too.
STANDSTILL, LOOK = 30, 2


class Worker:
    """A `ServingSession` in a process of its own; `run` may be called by many threads at once.

    Raises a ServingError if the SavedModel does not load.
    """

    def __init__(self, directory, intra_op_threads=None, inter_op_threads=None, xla=False):
        threads = {"intra_op_threads": intra_op_threads, "inter_op_threads": inter_op_threads}
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=child_environment(log_level=3),
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C goes to the server, which then ends this process
        )  # fmt: skip
        theirs.close()
        said = self._process.stderr
        self._passing = threading.Thread(target=pass_on, args=[said], daemon=True)
        self._passing.start()
        self._lock, self._numbers, self._waiting = threading.Lock(), itertools.count(), {}
        self._ended, self._calls = None, queue.SimpleQueue()
        self._sign, self._silent, self._looked = None, 0.0, 0.0
        try:
            self._pipe.send((str(Path(directory).resolve()), {**threads, "xla": xla}))
            loaded = self._pipe.recv()
        except (EOFError, OSError):
            raise self._how_it_ended() from None
        except BaseException:  # a signal: the caller gets no object that it could close
            self.close()
            raise
        if isinstance(loaded, ServingError):
            self.close()
            raise loaded
        for work in (self._send, self._receive):
            threading.Thread(target=work, daemon=True).start()

    @property
    def pid(self):
        """The process id."""
        return self._process.pid

    @property
    def alive(self):
        return self._process.poll() is None

    @property
    def peak_bytes(self):
        """The peak memory of the process in bytes; else its current memory; None if neither is
        known."""
        try:
            status = (PROC / str(self.pid) / "status").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        found = dict(re.findall(r"(?m)^(VmHWM|VmRSS):\s+(\d+) kB$", status))
        kibibytes = found.get("VmHWM", found.get("VmRSS"))
        return 1024 * int(kibibytes) if kibibytes else None

    def run(self, feeds, fetches, timeout=None):
        """See `ServingSession.run`. If the process hangs, it still ends with DEADLINE_EXCEEDED."""
        deadline = Deadline(timeout)
        number, result = self._ask(feeds, fetches, deadline)
        try:
            return result.result(deadline.left(GRACE))
        except TimeoutError:
            with self._lock:
                self._waiting.pop(number, None)
            message = "Timeout exceeded while waiting for the process of the model"
            raise ServingError("DEADLINE_EXCEEDED", message) from None

    def beat(self):
        """Checks that the process answers; kills it after `STANDSTILL` seconds without an answer.

        Call it regularly. It never blocks.
        """
        now = time.monotonic()
        if self._sign is None or self._sign.done():
            try:
                _, self._sign = self._ask(None, None, Deadline())
            except ServingError:  # the process has ended; `alive` is False
                return
            self._silent = 0.0
        else:
            self._silent += min(now - self._looked, LOOK)
            if self._silent >= STANDSTILL:
                self._process.kill()
        self._looked = now

    def _ask(self, feeds, fetches, deadline):
        """Puts a call into the queue. Returns its number and the future of its answer."""
        number, result = next(self._numbers), concurrent.futures.Future()
        with self._lock:
            if self._ended:
                raise self._ended
            self._waiting[number] = result
        self._calls.put((number, feeds, fetches, deadline.at))
        return number, result

    def close(self):
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._passing.join(PATIENCE)
        self._calls.put(None)

    def _send(self):
        """Sends the queued calls that are still wanted. Only this thread blocks on a full pipe."""
        while call := self._calls.get():
            with self._lock:
                result = self._waiting.get(call[0])
            if result is None:
                continue
            try:
                self._pipe.send(call)
            except OSError:  # `_receive` sees the end of the process and answers all callers
                return
            except Exception as error:  # fail this call alone, and keep the thread running
                with self._lock:
                    self._waiting.pop(call[0], None)
                result.set_exception(as_serving_error(error))

    def _receive(self):
        """Gives each answer to its caller. When the process ends, all waiting calls fail."""
        while True:
            try:
                number, answer = self._pipe.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                result = self._waiting.pop(number, None)
            if result is None:  # the caller has given up
                continue
            if isinstance(answer, ServingError):
                result.set_exception(answer)
            else:
                result.set_result(answer)
        error = self._how_it_ended()
        with self._lock:
            self._ended, waiting = error, list(self._waiting.values())
            self._waiting.clear()
        self._calls.put(None)
        self._pipe.close()
        for result in waiting:
            result.set_exception(error)

    def _how_it_ended(self):
        how = how_it_ended(self._process.wait())
        if self._silent >= STANDSTILL:
            how = f"stood still for {STANDSTILL} s and was ended"
        self._passing.join(PATIENCE)  # first print the last output of the process
        return ServingError("UNAVAILABLE", f"the process of the model {how}")


def main(descriptor):
    """The main function of the process: answers calls until the other end closes the pipe."""
    pipe = multiprocessing.connection.Connection(int(descriptor))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the server, which ends this
    try:
        directory, options = pipe.recv()
    except (EOFError, OSError):
        return  # the parent was interrupted before it sent what to load
    try:
        session = ServingSession(directory, **options)
    except ServingError as error:
        pipe.send(error)
        return
    pipe.send("loaded")
    lock = threading.Lock()

    def answer(number, feeds, fetches, at):
        deadline = Deadline()
        deadline.at = at
        try:
            if fetches is not None:
                deadline.check("waiting for other requests")
                result = session.run(feeds, fetches, deadline.left())
            else:
                result = None  # the answer to `beat`
        except Exception as error:  # each call must get an answer
            result = as_serving_error(error)
        with lock:
            try:
                pipe.send((number, result))
            except OSError:
                os._exit(0)

    with concurrent.futures.ThreadPoolExecutor(MAX_RUNS) as threads:
        while True:
            try:
                call = pipe.recv()
            except (EOFError, OSError):
                os._exit(0)  # no caller waits for the calls that still run
            if call[2] is None:
                answer(*call)  # at once, even if many runs wait
            else:
                threads.submit(answer, *call)


if __name__ == "__main__":
    main(sys.argv[1])
