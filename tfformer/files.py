"""Files that are whole or not there: JSON, arrays by name, anything in bytes."""

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import zipfile
from pathlib import Path

import numpy as np

# The types of JSON, in its words.
KINDS = {dict: "object", list: "array"}
# The key of a JSON object under which the sha256 of all its others stands.
CHECKSUM = "checksum"
PARTIAL = r"\..+\.[0-9a-f]{16}\.partial"  # the name of a file or folder that is not whole yet
LONGEST_TEXT = 100_000_000  # bytes of a file of JSON or words, which memory has ten times


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
    """Writes a file so that `path` holds the old content or the new, never a part of it.

    Args:
        path: of the file.
        content: its bytes; or a function that writes them into an open file and returns the path,
            whose name may be a checksum of them.
        folder: where a hidden file is until then, of the same file system. Default: beside it.
    """
    path = Path(path)
    name = f".{path.name}.{secrets.token_hex(8)}.partial"
    temporary = Path(folder or path.parent, name)
    try:
        with open(temporary, "x+b") as file:  # nobody else's: not a link that was put there before
            if callable(content):
                path = content(file)
            else:
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


@contextlib.contextmanager
def whole_folder(directory, parts):
    """A new hidden folder beside `directory`, which is renamed to that when the block has ended.

    If the block fails, the folder is removed. What processes that were killed have left beside
    `directory` is removed first. A folder that is locked belongs to one that is at work. On a disk
    without locks nothing is removed.

    Args:
        directory: the path, where nothing is yet.
        parts: the pattern of the names of files in such a folder. A folder with others stays.
    """
    directory = Path(directory)
    for left in directory.parent.glob(".*.partial"):
        if re.fullmatch(PARTIAL, left.name) and not left.is_symlink() and left.is_dir():
            _remove_left(left, rf"{parts}|{PARTIAL}")
    handle = None
    while handle is None:  # another process may have swept it before it was locked
        folder = directory.parent / f".{directory.name}.{secrets.token_hex(8)}.partial"
        folder.mkdir()
        try:
            handle = _locked(folder)
        except OSError:
            handle = os.open(folder, os.O_RDONLY)
    try:
        yield folder
        folder.rename(directory)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(handle)


def _remove_left(folder, parts):
    """Removes a folder of `whole_folder`, unless it is in use or has other files than its own."""
    try:
        handle = _locked(folder)
    except OSError:  # no locks there, or gone by now
        return
    if handle is not None:
        if all(re.fullmatch(parts, path.name) for path in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _locked(folder):
    """A descriptor that locks a folder until it is closed; None if another process has the lock,
    or has removed the folder. A process that is killed gives the lock up."""
    import fcntl  # which Windows has not

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.exists():
            return handle
    except BlockingIOError:
        pass
    except OSError:
        os.close(handle)
        raise
    os.close(handle)
    return None


def regular_size(path, most=None):
    """How many bytes a file has: a file with an end, of which memory can hold all.

    It is called before a file from elsewhere is opened. A device or a pipe would be read forever.

    Args:
        path: the file, or a link to it.
        most: the bytes that it may have. Default: the memory of this machine.

    Raises:
        RunError: it is no regular file, or is larger.
        OSError: there is none.
    """
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        kind = {"d": "folder", "p": "pipe", "s": "socket"}.get(stat.filemode(found.st_mode)[0])
        raise RunError(f"{path} must be a regular file, got a {kind or 'device'}")
    most = most or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if found.st_size > most:
        raise RunError(f"{path} must have at most {most:,} bytes, got {found.st_size:,}")
    return found.st_size


def read_bytes(path, most=None):
    """The bytes of a regular file; `most`, and what is raised, as of `regular_size`."""
    size = regular_size(path, most)
    with open(path, "rb") as file:
        return file.read(size)


def is_file_name(name):
    """Whether something that stands in a file, anything JSON, can name a file beside it."""
    return (
        isinstance(name, str)
        and name == Path(name).name
        and name != ".."
        and 0 < len(name.encode(errors="replace")) <= 255
        and name.isprintable()
    )


def read_json(path, kind=dict):
    """What a JSON file has; without its checksum, if it has one.

    Args:
        path: the file.
        kind: the type of what it has, `dict` (default) or `list`.

    Raises:
        RunError: it is damaged: no JSON, nested too deep, of another type, or changed since its
            checksum was made; or it is no file to be read: see `read_bytes`.
        OSError: it cannot be read.
    """
    content = read_bytes(path, LONGEST_TEXT)
    try:
        value = json.loads(content)
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
    """The bytes of an .npz file -> arrays by name. No pickles, and nothing compressed: no arrays
    come out that are larger than the file.

    Raises:
        RunError: it is none, or cut short.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            members = file.infolist()
        if any(one.compress_type for one in members):
            raise ValueError("its arrays must not be compressed")
        if sum(one.file_size for one in members) > len(content):
            raise ValueError("its arrays must each have bytes of their own")
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
        return unpack(read_bytes(path))
    except RunError as error:
        raise RunError(f"{path} is damaged: {error}") from error
