"""Starts commands in separate processes."""

import os
import subprocess
import sys
import tempfile

from paths import ROOT, SUPPORT


def begin(module, arguments, environment=(), output=subprocess.DEVNULL, limit=None, before=""):
    """Starts `python -m MODULE ARGUMENTS` in a process; returns the `subprocess.Popen`.

    Args:
        module: a module with a function `main`.
        arguments: of the command.
        environment: variables that differ from those of this process; None removes one.
        output: a file for both streams.
        limit: the maximum size of a file in bytes; a write beyond it fails. Default: none.
        before: a Python program that runs in the process before the command.
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)])}
    variables |= {"TF_CPP_MIN_LOG_LEVEL": "3"} | dict(environment)
    # A shell that starts the tests in the background makes its child processes ignore Ctrl-C.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    if limit is not None:
        before += (
            f"\nimport resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
        )
    program = f"{listen}\n{before}\nimport sys, {module}\nsys.exit({module}.main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        env={name: value for name, value in variables.items() if value is not None},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )


def ended(module, arguments, seconds=300, **options):
    """Runs a command to its end, or kills it after `seconds`; returns its exit code and its output.

    `options` are those of `begin`. The output goes to a file: a pipe would stay open in a child
    process that outlives the command.
    """
    with tempfile.TemporaryFile() as output:
        process = begin(module, arguments, output=output, **options)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
        output.seek(0)  # both share the position in the file
        return code, output.read().decode(errors="replace")


def train(arguments, environment=(), limit=None):
    """Runs `training.train` to its end; its output is in `stderr` of the result."""
    process = begin("training.train", arguments, environment, subprocess.PIPE, limit)
    written, _ = process.communicate()
    text = written.decode(errors="replace")
    return subprocess.CompletedProcess(arguments, process.returncode, stderr=text)
