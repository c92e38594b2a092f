"""Environments with the original systems, installed from the package registry for a test."""

import os
import subprocess
import sys

import pytest
from shared import once

# {system: (the interpreter for its environment, the packages)}
SYSTEMS = {
    "HUGGING_FACE": (
        sys.executable,
        ["torch==2.13.0", "transformers==5.24.0", "sentencepiece==0.2.3", "sacremoses",
         "safetensors", "tokenizers", "protobuf", "tiktoken"],
    ),
    "OPENNMT": (
        "python3.10",
        ["OpenNMT-tf[tensorflow]==2.32.0", "sentencepiece==0.2.0"],
    ),
}  # fmt: skip


def python_of(system, tmp_path_factory):
    """The interpreter of an environment with the original; without one, the test is skipped.

    The variable `TFFORMER_{system}_PYTHON` may name one. Otherwise all tests of a run share one.
    """
    named = os.environ.get(f"TFFORMER_{system}_PYTHON")
    if named:
        return named
    folder = once(tmp_path_factory, f"original-{system}", lambda path: _make(path, system))
    return folder / "bin" / "python"


def _make(folder, system):
    interpreter, packages = SYSTEMS[system]
    for command in (
        [interpreter, "-m", "venv", folder],
        # Most of its modules are never imported.
        [folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-compile", *packages],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            pytest.skip(f"there is no {interpreter}: {error.strerror}")
        if done.returncode:
            pytest.skip(f"the original cannot be installed here: {done.stderr.strip()[-300:]}")


def written_by(python, program, folder, *options):
    """Runs a program of `tests/support` that writes its small folders with the original's
    results."""
    command = [python, program, "write", folder, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
