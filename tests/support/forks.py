"""Processes of `training.train`, forked from one that has imported what it imports.

An import of TensorFlow takes seconds, and a test that kills a training needs it many times. The
process that is forked has imported and done nothing: TensorFlow has no threads yet, and shares its
own among the parts of a batch in each child, as in a process that began by itself.
"""

import atexit
import functools
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
from types import SimpleNamespace

from paths import ROOT, SUPPORT


@functools.cache
def _server():
    server = subprocess.Popen(
        [sys.executable, __file__],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)]),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    # It ends when there is nothing more to read.
    atexit.register(server.communicate)
    return server


def run(program):
    """Runs a program of Python in a process of its own; returns what `train` returns."""
    return train(["-c", program])


def train(arguments, environment=(), largest_file=None):
    """Runs the command to its end.

    Args:
        arguments: of the command.
        environment: variables besides this process's own; None takes one away.
        largest_file: bytes that a file may grow to; the write that passes it fails. Default: any.

    Returns:
        What `subprocess.run` gives, as far as returncode and stderr.
    """
    server = _server()
    with tempfile.NamedTemporaryFile("r") as error:
        job = [list(arguments), dict(environment), largest_file, error.name]
        print(json.dumps(job), file=server.stdin, flush=True)
        code = server.stdout.readline()
        assert code, f"python {__file__} has ended: run it to see why"
        return SimpleNamespace(returncode=int(code), stderr=error.read())


def _child(arguments, environment, largest_file, error):
    from training import train as command

    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    handle = os.open(error, os.O_WRONLY)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    if arguments[0] == "-c":
        exec(compile(arguments[1], "<program>", "exec"), {"__name__": "__main__"})
        sys.exit()
    sys.exit(command.main(arguments))


def _serve():
    """A line in, a job; a line out, its exit code."""
    from training import train as command

    for name, value in command.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # What the command imports when it trains, and the recipe.
    import killing_recipe  # noqa: F401

    from training import bleu  # noqa: F401
    from training.report import card, picture  # noqa: F401

    # No child looks through what was imported, nor copies its pages.
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _child(*json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _serve()
