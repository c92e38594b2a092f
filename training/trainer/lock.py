"""One training at a time in a run directory."""

import contextlib
from pathlib import Path

from filelock import lock_descriptor

from training.terminal.command import without_its_package

LOCK = ".lock"


@contextlib.contextmanager
def alone(directory, use="training"):
    """Inside, no other process is inside with the same directory, whatever becomes of this one.

    Args:
        directory: made if it is missing, and removed again if nothing was put into it.
        use: what for, in a word, for the error.

    Raises:
        OSError: another process is inside, the directory cannot be written, or its lock is a link.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    open_own = without_its_package("tfformer.files").open_own
    with open_own(directory / LOCK, "ab+", second_names=True) as file:
        # The system's lock of an open file: a process that is killed gives it up.
        if not lock_descriptor(file.fileno(), blocking=False):
            raise OSError(f"{directory} is in {use} already")
        try:
            yield
        finally:
            if [path.name for path in directory.iterdir()] == [LOCK]:
                (directory / LOCK).unlink()
                directory.rmdir()
