"""Files that are whole or not there: JSON, arrays by name, anything in bytes."""

import hashlib
import io
import json
import os
import secrets
from pathlib import Path

import numpy as np

# The types of JSON, in its words.
KINDS = {dict: "object", list: "array"}
# The key of a JSON object under which the sha256 of all its others stands.
CHECKSUM = "checksum"


class RunError(ValueError):
    """A run directory that is none, or is damaged, or was mixed from two.

    Example:
        >>> try:
        ...     load("no-such-run")
        ... except RunError as error:
        ...     print(error)
        no-such-run is no directory
    """


def write_atomically(path, content, folder=None):
    """Writes the bytes so that `path` holds the old content or the new, never a part of it.

    Until then they are in a hidden file in `folder`, of the same file system. Default: beside it.
    """
    path = Path(path)
    name = f".{path.name}.{secrets.token_hex(8)}.partial"
    temporary = Path(folder or path.parent, name)
    try:
        with open(temporary, "xb") as file:  # nobody else's: not a link that was put there before
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sweep(path):
    """Removes what processes that were killed in `write_atomically` have left for this path.

    For who knows that no other process writes it now. Its name may be a pattern of `Path.glob`.
    """
    path = Path(path)
    for left in path.parent.glob(f".{path.name}.*.partial"):
        left.unlink(missing_ok=True)


def read_json(path, kind=dict):
    """What a JSON file has; without its checksum, if it has one.

    Args:
        path: the file.
        kind: the type of what it has, `dict` (default) or `list`.

    Raises:
        RunError: it is damaged: no JSON, nested too deep, of another type, or changed since its
            checksum was made.
        OSError: it cannot be read.
    """
    try:
        value = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(value, kind):
        found = type(value).__name__
        raise RunError(f"{path} is damaged: it must be a JSON {KINDS[kind]}, got {found}")
    if kind is dict and CHECKSUM in value:
        expected, received = value.pop(CHECKSUM), checksum(value)
        if received != expected:
            raise RunError(f"{path} is damaged: its checksum must be {expected!r}, got {received}")
    return value


def write_lines(path, texts):
    """Writes texts, each a line, as `write_atomically` does."""
    write_atomically(path, "".join(f"{text}\n" for text in texts).encode())


def write_json(path, value, checked=False):
    """Writes a JSON file, by `write_atomically`; `checked`: an object with its checksum."""
    if checked:
        value = {**value, CHECKSUM: checksum(value)}
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def checksum(value):
    """The sha256 of a JSON value, however it is indented and in whatever order its keys are."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


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
