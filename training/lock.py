"""One training at a time in a run directory."""

import contextlib
from pathlib import Path

from filelock import lock_descriptor

LOCK = ".lock"


@contextlib.contextmanager
def alone(directory, use="training"):
    """Inside, no other process is inside with the same directory, whatever becomes of this one.

    Args:
        directory: made if it is missing, and removed again if nothing was put into it.
        use: what for, in a word, for the error.

    Raises:
        OSError: another process is inside, or the directory cannot be written.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / LOCK, "wb") as file:
        # The system's lock of an open file: a process that is killed gives it up.
        if not lock_descriptor(file.fileno(), blocking=False):
            raise OSError(f"{directory} is in {use} already")
        try:
            yield
        finally:
            if [path.name for path in directory.iterdir()] == [LOCK]:
                (directory / LOCK).unlink()
                directory.rmdir()
