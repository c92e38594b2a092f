"""One training at a time in a run directory."""

import contextlib
import errno
import os
from pathlib import Path

from filelock import lock_descriptor

LOCK = ".lock"


def open_own(path):
    """A file of this folder to read and to append to, made if it is missing.

    A folder may be from elsewhere, with a link to a file of the user in it: no link is followed.

    Raises:
        OSError: it is a link, or cannot be opened.
    """

    def opener(name, flags):
        return os.open(name, flags | os.O_NOFOLLOW, 0o666)

    try:
        return open(path, "ab+", opener=opener)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"{path} must be a file of its own, got a link") from error
        raise


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
    with open_own(directory / LOCK) as file:
        # The system's lock of an open file: a process that is killed gives it up.
        if not lock_descriptor(file.fileno(), blocking=False):
            raise OSError(f"{directory} is in {use} already")
        try:
            yield
        finally:
            if [path.name for path in directory.iterdir()] == [LOCK]:
                (directory / LOCK).unlink()
                directory.rmdir()
