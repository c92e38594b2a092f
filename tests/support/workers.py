"""Runs the command training.train in one process or in several, for tests of exact resume."""

import json
import os
import socket
import tempfile
from pathlib import Path

import numpy as np
import processes
import pytest
from paths import SUPPORT

from tfformer.files import unpack
from tfformer.run import load_model, model_weights
from training import train as command

RECIPE = str(SUPPORT / "killing_recipe.py")
# The number of kills in a test with random kills. Ten take ten minutes.
KILLS = int(os.environ.get("TFFORMER_KILLS", 2))


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Workers:
    """`count` processes of one training; the first is the chief.

    Args:
        run: the run directory.
        options: of the command.
        count: 1 is a training without workers.
        die: where one of them dies (see killing_recipe.py), by its number.
        environment: of all of them, with Muon if it does not name another OPTIMIZER.
    """

    def __init__(self, run, *options, count=1, die=(), **environment):
        cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(count)]}
        arguments = [RECIPE, "--run", str(run), *options]
        # A resumed run has its workers stored.
        if count > 1 and not (Path(run) / "prepared").exists():
            arguments += ["--strategy", "multiworker"]
        environment = {"OPTIMIZER": "muon", **environment}
        self.processes, self.errors = [], []
        for index in range(count):
            config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            own = {"TF_CONFIG": json.dumps(config)} if count > 1 else {}
            if index in dict(die):
                own["DIE"] = dict(die)[index]
            # A file, because nobody reads a pipe while they run, so it would fill up.
            self.errors.append(tempfile.NamedTemporaryFile("a+"))
            variables = {**environment, **own}
            process = processes.begin("training.train", arguments, variables, self.errors[-1])
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.kill()

    def kill(self):
        """Sends SIGKILL to all that still run."""
        for process in self.processes:
            process.kill()
            process.wait()

    def wait(self, timeout=600):
        """The exit codes."""
        return [process.wait(timeout) for process in self.processes]

    def wait_for(self, worker, timeout=600):
        """The exit code of one of them."""
        return self.processes[worker].wait(timeout)

    def said(self, worker):
        """What a worker wrote to standard error."""
        self.errors[worker].seek(0)
        return self.errors[worker].read()


def train(run, *options, count=1, **environment):
    """Trains to the end, in `count` processes."""
    if count == 1:
        done = alone(run, *options, **environment)
        assert done.returncode == 0, done.stderr
        return
    with Workers(run, *options, count=count, **environment) as workers:
        codes = workers.wait()
        assert not any(codes), "\n".join(map(workers.said, range(len(codes))))


def alone(run, *options, **environment):
    """Runs the command in one process, with the environment of `Workers`."""
    environment = {"OPTIMIZER": "muon", "TF_CONFIG": os.environ.get("TF_CONFIG"), **environment}
    return processes.train([RECIPE, "--run", str(run), *options], environment)


def last_state(run):
    """The arrays of the last checkpoint, and its progress without time and speed."""
    arrays = unpack((Path(run) / "checkpoints" / "last.npz").read_bytes())
    progress = json.loads(arrays.pop("progress").tobytes())
    for figures in (progress, *progress["history"]):
        figures.pop("seconds", None)
    for figures in (progress.get("fit", {}), *progress["history"]):
        figures.pop("tokens_per_second", None)
    return arrays, progress


def assert_same_state(run, expected):
    """Weights, moments and random generators are the same, bit for bit, and so is the position.

    The metrics of the epoch may differ in the last bit, because a resumed worker adds to the sum
    over all workers instead of its own.
    """
    (ours, progress), (theirs, expected_progress) = last_state(run), last_state(expected)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if name.startswith("metrics/"):
            np.testing.assert_allclose(ours[name], value, rtol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(ours[name], value, err_msg=name)
    assert progress["best"] == expected_progress["best"]
    ours, theirs = model_weights(load_model(run)), model_weights(load_model(expected))
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=f"published: {name}")
    assert len(progress["history"]) == len(expected_progress["history"])
    for row, expected_row in zip(progress["history"], expected_progress["history"], strict=True):
        assert row == pytest.approx(expected_row, rel=1e-5)


def assert_close_weights(run, expected, epoch):
    """The weights after an epoch are the same to 1e-5.

    Exceptions are biases of keys: such a bias is added to all scores of a query, so its gradient is
    rounding error alone, which Adam turns into full steps. If a gradient almost cancels, Adam
    enlarges its rounding error too: one weight of 4,200, of size 0.15, differs by a little over
    1e-5.
    """
    name = f"checkpoints/epoch-{epoch}.npz"
    ours, theirs = (unpack((Path(r) / name).read_bytes()) for r in (run, expected))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if not name.endswith("key/bias"):
            np.testing.assert_allclose(ours[name], value, 1e-4, 1e-5, err_msg=name)


def start(run, *options, die=None, cores=2, **kwargs):
    """Starts the command in a process; each batch is computed in so many parallel parts."""
    arguments = [RECIPE, "--run", str(run), f"--cores={cores}", *options]
    return processes.train(arguments, {"DIE": die} if die else {}, **kwargs)


def fails(arguments, capsys, code):
    """Runs the command in this process; returns its error line."""
    try:
        assert command.main(arguments) == code
    except SystemExit as stop:
        assert stop.code == code
    lines = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(lines) == 1, lines
    return lines[0]
