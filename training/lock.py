"""One training at a time in a run directory."""

import contextlib
import fcntl
from pathlib import Path

LOCK = ".lock"


@contextlib.contextmanager
def alone(directory):
    """Inside, no other process is inside with the same directory, whatever becomes of this one.

    Args:
        directory: made if it is missing, and removed again if nothing was put into it.

    Raises:
        OSError: another process is inside, or the directory cannot be written.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / LOCK, "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(f"{directory} is in training already") from error
        try:
            yield
        finally:
            if [path.name for path in directory.iterdir()] == [LOCK]:
                (directory / LOCK).unlink()
                directory.rmdir()
