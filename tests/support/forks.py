"""Processes of commands of `training`, forked from one that has imported what they import.

An import of TensorFlow takes seconds, and a test that kills a training needs it many times. The
process that is forked has imported and done nothing: TensorFlow has no threads yet, and shares its
own among the parts of a batch in each child, as in a process that began by itself.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
from types import SimpleNamespace

from paths import ROOT, SUPPORT

_asking = threading.Lock()


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


class Process:
    """`python -m MODULE ARGUMENTS`, with what of `subprocess.Popen` tests use.

    Args:
        module: with a function `main`; or `"-c"`, whose argument is a program.
        arguments: of the command.
        environment: variables besides those of this process when it first asked; None takes one
            away.
        output: a file that both streams are appended to.
        largest_file: bytes that a file may grow to; the write that passes it fails. Default: any.
        before: a program of Python that the child runs before its command. Default: none.

    Attributes:
        returncode: None until it was waited for.
    """

    def __init__(self, module, arguments, environment, output, largest_file=None, before=""):
        with _asking, tempfile.TemporaryDirectory() as folder:
            server = _server()
            fifo = os.path.join(folder, "code")
            os.mkfifo(fifo)
            self._code = open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))
            job = {
                "module": module,
                "arguments": [str(argument) for argument in arguments],
                "environment": dict(environment),
                "output": str(output),
                "largest_file": largest_file,
                "before": before,
                # Those of this thread, as any process that it begins.
                "cores": sorted(os.sched_getaffinity(0)),
            }
            print(json.dumps({"fifo": fifo, "job": job}), file=server.stdin, flush=True)
            pid = server.stdout.readline()
        assert pid, f"python {__file__} has ended: run it to see why"
        self.pid, self.returncode = int(pid), None

    def wait(self, timeout=None):
        """Its exit code."""
        if self.returncode is None:
            if not select.select([self._code], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            with self._code:
                self.returncode = int(self._code.read())
        return self.returncode

    def kill(self):
        self._send(signal.SIGKILL)

    def terminate(self):
        self._send(signal.SIGTERM)

    def _send(self, number):
        if self.returncode is None and not select.select([self._code], [], [], 0)[0]:
            os.kill(self.pid, number)


def run(program):
    """Runs a program of Python to its end; returns what `train` returns."""
    return _ended("-c", [program])


def train(arguments, environment=(), largest_file=None):
    """Runs `training.train` to its end; the arguments are those of `Process`.

    Returns:
        What `subprocess.run` gives, as far as returncode and stderr.
    """
    return _ended("training.train", arguments, environment, largest_file)


def _ended(module, arguments, environment=(), largest_file=None):
    with tempfile.NamedTemporaryFile("r") as error:
        process = Process(module, arguments, environment, error.name, largest_file)
        return SimpleNamespace(returncode=process.wait(), stderr=error.read())


def _begin(module, arguments, environment, output, largest_file, before, cores):
    """The life of a child."""
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    handle = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    os.sched_setaffinity(0, cores)
    exec(compile(before, "<before>", "exec"), {"__name__": "before"})
    if module == "-c":
        exec(compile(*arguments, "<program>", "exec"), {"__name__": "__main__"})
        sys.exit()
    sys.exit(importlib.import_module(module).main(arguments))


def _keep(fifo, job):
    """Forks the child, says its number, and its exit code when it has ended."""
    # Open as long as this process is there, so that whoever reads it waits.
    with open(fifo, "w") as code:
        child = os.fork()
        if not child:
            code.close()
            _begin(**job)
        print(child, flush=True)
        # Its number is not given to another process before its exit code can be read.
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        exited = ended.si_code == os.CLD_EXITED
        code.write(str(ended.si_status if exited else -ended.si_status))
    os.wait()


def _serve():
    """A line in, a job; a line out, the number of its process."""
    from training import train as command

    # Who began the tests in the background may ignore it, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, value in command.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # What the commands import when they train and evaluate, the recipe, and what is called here.
    import killing_recipe  # noqa: F401
    from traces import share_one_stack

    from training.metrics import bleu  # noqa: F401
    from training.report import card, picture  # noqa: F401

    share_one_stack()
    # No child looks through what was imported, nor copies its pages.
    gc.freeze()
    for line in sys.stdin:
        if not os.fork():
            _keep(**json.loads(line))
            os._exit(0)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    _serve()
