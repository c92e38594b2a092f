"""Calls in a fresh process: `python -m export.capi.job JOB`, where JOB is a folder.

`calls.json` in it says what is loaded and asked; the answers are written beside it as
`results.json`. The process never imports TensorFlow's Python, and says so in its answer.
"""

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from export.capi.library import ServingError
from export.capi.session import ServingSession
from export.terminal.command import REMARK, remarks_are_wanted

ROOT = Path(__file__).resolve().parents[2]  # where a child process finds this package


def serve_calls(
    directory,
    calls: list[tuple[dict[str, np.ndarray], list[str]]],
    timeout: float | None = 600,
    *,
    xla: bool = False,
    python: str | os.PathLike | None = None,
) -> list[dict[str, np.ndarray] | ServingError]:
    """Make each call (feeds, fetches) in one fresh process; an answer is {fetch: array} or error.

    With `xla`, XLA is on in it; see `ServingSession`. `python` is the interpreter, by default this
    one: another one's environment may have another TensorFlow.

    A SavedModel that does not load, a process that dies, and one that takes longer than `timeout`
    seconds (None: there is no such limit) raise `ServingError`.
    """
    with tempfile.TemporaryDirectory(prefix="tfformer-serve-") as job:
        write_job(job, directory, calls, xla)
        try:
            child = subprocess.run(
                [python or sys.executable, "-m", "export.capi.job", job],
                cwd=ROOT, env=child_environment(log_level=2), timeout=timeout,
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
        answer = json.loads(Path(job, "results.json").read_text())
    if answer["python_tensorflow"]:
        raise ServingError("INTERNAL", "the serving process imported Python TensorFlow")
    if answer["error"]:
        raise ServingError(**answer["error"])
    return [
        ServingError(**result["error"])
        if "error" in result
        else {name: _from_json(value) for name, value in result.items()}
        for result in answer["results"]
    ]


def child_environment(log_level: int) -> dict[str, str]:
    """The environment of a process that has a session of its own."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TF_CPP_MIN_LOG_LEVEL": str(log_level),
        "CUDA_VISIBLE_DEVICES": "-1",  # a GPU belongs to the calling process, if to anyone
    }


def is_remark(line: bytes) -> bool:
    """Whether a line is a remark of TensorFlow that nobody has asked for."""
    return not remarks_are_wanted() and bool(re.match(REMARK.encode(), line))


def pass_on(said):
    """Writes to standard error what a process writes to its own, but for TensorFlow's remarks.

    TensorFlow 2.21 makes some before it reads how much it is to say. To file descriptor 2, for a
    thread that ends with its process must hold no lock of `sys.stderr`.

    Args:
        said: the other end of its standard error, a binary file; read until it ends, and closed.
    """
    with said:
        for line in said:
            if sys.stderr is not None and not is_remark(line):
                with contextlib.suppress(OSError):  # nobody reads any more
                    os.write(2, line)


def how_it_ended(code: int) -> str:
    """What the exit code of a process says, negative ones being signals."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def write_job(job, directory, calls, xla=False):
    """The child's input, `calls.json` in the folder `job`."""
    record = {
        "directory": str(Path(directory).resolve()),
        "xla": xla,
        "calls": [
            {"feeds": {name: _to_json(array) for name, array in feeds.items()}, "fetches": fetches}
            for feeds, fetches in calls
        ],
    }
    Path(job, "calls.json").write_text(json.dumps(record))


def run_job(job):
    """The child's whole life: load, make every call, write `results.json`."""
    record = json.loads(Path(job, "calls.json").read_text())
    answer = {"error": None, "results": []}
    try:
        with ServingSession(record["directory"], xla=record["xla"]) as session:
            for call in record["calls"]:
                feeds = {name: _from_json(value) for name, value in call["feeds"].items()}
                try:
                    arrays = session.run(feeds, call["fetches"])
                    results = zip(call["fetches"], map(_to_json, arrays), strict=True)
                    answer["results"].append(dict(results))
                except ServingError as error:
                    answer["results"].append({"error": vars(error)})
    except ServingError as error:
        answer["error"] = vars(error)
    answer["python_tensorflow"] = "tensorflow" in sys.modules
    Path(job, "results.json").write_text(json.dumps(answer))


def _to_json(array: np.ndarray) -> dict:
    """Bytes survive JSON in base64: NUL, and what is not UTF-8, included."""
    strings = array.dtype == object
    data = array.ravel().tolist() if strings else [array.tobytes()]
    data = [base64.b64encode(value).decode() for value in data]
    return {"dtype": str(array.dtype), "shape": array.shape, "data": data}


def _from_json(value: dict) -> np.ndarray:
    data = [base64.b64decode(text) for text in value["data"]]
    if value["dtype"] == "object":
        array = np.empty(len(data), object)
        array[:] = data
    else:
        array = np.frombuffer(data[0], np.dtype(value["dtype"]))
    return array.reshape(value["shape"])


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "calls.json").is_file():
        sys.exit("usage: python -m export.capi.job JOB (a folder that holds calls.json)")
    run_job(sys.argv[1])
