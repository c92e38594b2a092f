"""Files that are whole or not there: JSON, arrays by name, anything in bytes."""

import io
import json
import os
from pathlib import Path

import numpy as np


class RunError(ValueError):
    """A run directory that is none, or is damaged, or was mixed from two.

    Example:
        >>> try:
        ...     load("no-such-run")
        ... except RunError as error:
        ...     print(error)
        no-such-run is no directory
    """


def write_atomically(path, content):
    """Writes the bytes so that `path` holds the old content or the new, never a part of it."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_json(path):
    """What a JSON file has.

    Raises:
        RunError: it is damaged.
        OSError: it cannot be read.
    """
    try:
        return json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error


def write_json(path, value):
    """Writes a JSON file, by `write_atomically`."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def sync(*paths):
    """Files and folders onto the disk, as they are now."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def pack(arrays):
    """Arrays by name -> the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack(content):
    """The bytes of an .npz file -> arrays by name. No pickles.

    Raises:
        RunError: it is none, or cut short.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # of many types, by the damaged byte
        raise RunError(f"no whole .npz file: {error}") from error


def read_arrays(path):
    """The arrays by name of a file written by `pack`.

    Raises:
        RunError: naming the file, which is damaged.
        OSError: it cannot be read.
    """
    try:
        return unpack(Path(path).read_bytes())
    except RunError as error:
        raise RunError(f"{path} is damaged: {error}") from error
