"""Runs a SavedModel in a fresh process: `python -m export.capi.job JOB`, where JOB is a folder.

`calls.pickle` in it has the SavedModel and the calls; the process writes `results.pickle` beside
it. The process never imports TensorFlow's Python package, and reports this with its results.
"""

import contextlib
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tfformer import checkout
from tfformer.terminal.command import REMARK, remarks_are_wanted

from .library import ServingError
from .session import ServingSession


def serve_calls(
    directory,
    calls: list[tuple[dict[str, np.ndarray], list[str]]],
    timeout: float | None = 600,
    *,
    xla: bool = False,
    python: str | os.PathLike | None = None,
) -> list[dict[str, np.ndarray] | ServingError]:
    """Runs each call (feeds, fetches) in one fresh process. Answers are {fetch: array} or an error.

    `python` is the interpreter, by default this one; another one may have another TensorFlow.

    Raises:
        ServingError: the SavedModel does not load, the process dies, or the time is over.
    """
    with tempfile.TemporaryDirectory(prefix="tfformer-serve-") as job:
        write_job(job, directory, calls, xla)
        try:
            child = subprocess.run(
                [python or sys.executable, "-P", "-m", __name__, job],
                env=child_environment(log_level=2), timeout=timeout,
                stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            message = f"the serving process had not answered {len(calls)} calls in {timeout:g} s"
            raise ServingError("DEADLINE_EXCEEDED", message) from error
        if child.returncode:
            how = how_it_ended(child.returncode)
            said = [line for line in child.stderr.strip().splitlines() if not is_remark(line)]
            tail = [line.decode(errors="replace") for line in said[-1:]]
            raise ServingError("UNAVAILABLE", ": ".join([f"the serving process {how}", *tail]))
        answers, imported = pickle.loads(Path(job, "results.pickle").read_bytes())
    if imported:
        raise ServingError("INTERNAL", "the serving process imported Python TensorFlow")
    if isinstance(answers, ServingError):
        raise answers
    return answers


def child_environment(log_level: int) -> dict[str, str]:
    """The environment variables of a child process with its own session."""
    paths = filter(None, [checkout.root(), os.environ.get("PYTHONPATH")])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TF_CPP_MIN_LOG_LEVEL": str(log_level),
        "CUDA_VISIBLE_DEVICES": "-1",  # only the calling process may use a GPU
    }


def is_remark(line: bytes) -> bool:
    """Whether a line is a log line of TensorFlow that the user has not asked for."""
    return not remarks_are_wanted() and bool(re.match(REMARK.encode(), line))


def pass_on(said):
    """Copies `said`, the standard error of a process, to our own, without TensorFlow's log lines.

    TensorFlow 2.21 writes some lines before it reads its log level. This writes to file descriptor
    2, because a daemon thread must not hold the lock of `sys.stderr` when the process ends.
    """
    with said:
        for line in said:
            if sys.stderr is not None and not is_remark(line):
                with contextlib.suppress(OSError):  # standard error is no longer read
                    os.write(2, line)


def how_it_ended(code: int) -> str:
    """The exit code of a process in words. Negative codes are signals."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def write_job(job, directory, calls, xla=False):
    """Writes the input of the child process: `calls.pickle` in the folder `job`."""
    record = str(Path(directory).resolve()), xla, calls
    Path(job, "calls.pickle").write_bytes(pickle.dumps(record))


def run_job(job):
    """The child process: loads the SavedModel, runs every call, writes `results.pickle`."""
    directory, xla, calls = pickle.loads(Path(job, "calls.pickle").read_bytes())
    answers = []
    try:
        with ServingSession(directory, xla=xla) as session:
            for feeds, fetches in calls:
                try:
                    arrays = session.run(feeds, fetches)
                    answers.append(dict(zip(fetches, arrays, strict=True)))
                except ServingError as error:
                    answers.append(error)
    except ServingError as error:
        answers = error
    results = answers, "tensorflow" in sys.modules
    Path(job, "results.pickle").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "calls.pickle").is_file():
        sys.exit("usage: python -m export.capi.job JOB (a folder that holds calls.pickle)")
    run_job(sys.argv[1])
