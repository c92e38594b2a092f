"""Allows only one training at a time in a run directory."""

import contextlib
from pathlib import Path

from filelock import lock_descriptor

from tfformer.files import open_own

LOCK = ".lock"


@contextlib.contextmanager
def alone(directory, use="training"):
    """A context that only one process can enter for a directory, even if processes are killed.

    The directory is created if it is missing, and removed again if it stays empty. The OSError for
    a second process says what the directory is in `use` for.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with open_own(directory / LOCK, "ab+", second_names=True) as file:
        # The system's lock on an open file: it is released when the process is killed.
        if not lock_descriptor(file.fileno(), blocking=False):
            raise OSError(f"{directory} is in {use} already")
        try:
            yield
        finally:
            if [path.name for path in directory.iterdir()] == [LOCK]:
                (directory / LOCK).unlink()
                directory.rmdir()
