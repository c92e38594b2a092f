"""Environments of the systems that models come from, made of the package registry for a test."""

import os
import subprocess

import pytest


def python_of(system, interpreter, packages, folder):
    """The interpreter of an environment that has the original; the test is skipped without.

    Args:
        system: of the variable `TFFORMER_{SYSTEM}_PYTHON`, which may name one that is there.
        interpreter: what makes another one.
        packages: that it gets.
        folder: where it is made.
    """
    named = os.environ.get(f"TFFORMER_{system}_PYTHON")
    if named:
        return named
    python = folder / "bin" / "python"
    for command in (
        [interpreter, "-m", "venv", folder],
        # Most of its modules are never imported.
        [python, "-m", "pip", "install", "--quiet", "--no-compile", *packages],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            pytest.skip(f"there is no {interpreter}: {error.strerror}")
        if done.returncode:
            pytest.skip(f"the original cannot be installed here: {done.stderr.strip()[-300:]}")
    return python


def written_by(python, program, folder, *options):
    """Has a program of `tests/support` write its small folders with what the original says."""
    command = [python, program, "write", folder, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
