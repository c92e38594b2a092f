"""Reads and writes files safely: atomic writes, JSON with checksums, arrays by name."""

import contextlib
import errno
import functools
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import sys
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np

# The types of JSON by their JSON names.
KINDS = {dict: "object", list: "array"}
# The key in a JSON object for the sha256 of all other entries.
CHECKSUM = "checksum"
PARTIAL_NAME = r"\..+\.[0-9a-f]{16}\.partial"  # of a file or folder while it is written
# The maximum size of a JSON or text file, in bytes. Parsed, it takes about ten times the memory.
LONGEST_TEXT = 100_000_000
# What ends the name of an array that is stored as bfloat16.
BFLOAT16 = ".bfloat16"
# The files in which Linux gives the memory limit of a container: cgroup version 2, and 1.
MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class RunError(ValueError):
    """A run directory is missing, is damaged, or mixes files of two runs.

    Example:
        >>> try:
        ...     load("no-such-run")
        ... except RunError as error:
        ...     print(error)
        no-such-run is no directory
    """


@contextlib.contextmanager
def hidden_file(folder, name):
    """A new hidden file in a folder, open for writing. `publish` gives it its final name.

    If the block ends before that, the file is removed.

    Args:
        folder: the folder.
        name: the final file name.
    """
    path = Path(folder, f".{name}.{secrets.token_hex(8)}.partial")
    try:
        with open(path, "x+b") as file:  # "x" creates a new file and never follows a link
            yield file
    finally:
        path.unlink(missing_ok=True)


def publish(file, path):
    """Renames a `hidden_file` to `path`, after its content has reached the disk."""
    file.flush()
    os.fsync(file.fileno())
    os.replace(file.name, path)
    sync(Path(path).parent)


def write_atomically(path, content, folder=None):
    """Writes a file atomically: `path` holds the old content or the new one, never a part.

    Args:
        path: the file.
        content: its bytes.
        folder: the folder of the hidden file; it must be on the same file system. Default: the
            folder of `path`.
    """
    path = Path(path)
    with hidden_file(folder or path.parent, path.name) as file:
        file.write(content)
        publish(file, path)


def sweep(path):
    """Removes the hidden files left by killed processes that were writing this path.

    No other process may be writing to it now. Its name may be a pattern of `Path.glob`.
    """
    path = Path(path)
    for left in path.parent.glob(f".{path.name}.{'[0-9a-f]' * 16}.partial"):
        left.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(directory, parts):
    """A new hidden folder beside `directory`, renamed to `directory` when the block ends.

    If the block fails, the folder is removed. Before the block, hidden folders that killed
    processes left beside `directory` are removed. A locked folder stays, because a running process
    is writing it. On a file system without locks no folder is removed.

    Args:
        directory: a path that does not exist yet.
        parts: a regular expression of the file names in such a folder. A folder with other names
            is not removed.
    """
    directory = Path(directory)
    for left in directory.parent.glob(".*.partial"):
        if re.fullmatch(PARTIAL_NAME, left.name) and not left.is_symlink() and left.is_dir():
            _remove_left(left, rf"{parts}|{PARTIAL_NAME}")
    handle = None
    while handle is None:  # another process may remove the folder before it is locked
        folder = directory.parent / f".{directory.name}.{secrets.token_hex(8)}.partial"
        folder.mkdir()
        try:
            handle = locked(folder)
        except FileNotFoundError:
            continue
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
    """Removes a folder of `whole_folder`, unless it is locked or has file names outside `parts`."""
    try:
        handle = locked(folder)
    except OSError:  # no locks there, or the folder is gone
        return
    if handle is not None:
        if all(re.fullmatch(parts, path.name) for path in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def locked(folder):
    """A descriptor that locks a folder until it is closed; None if another process has the lock or
    has removed the folder. A killed process releases its lock."""
    import fcntl  # missing on Windows

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


def open_regular(path, maximum=None):
    """Opens an untrusted file for reading: a regular file that fits into memory.

    Reading a device or a pipe might never end.

    Args:
        path: the file, or a link to it.
        maximum: its maximum size in bytes. Default: the memory of this machine or container.

    Returns:
        A binary file.

    Raises:
        RunError: it is not a regular file, or it is too large.
        OSError: it cannot be opened.
    """
    try:  # without waiting for the process that writes to a pipe
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise RunError(f"{path} must be a regular file, got a socket") from error
        raise
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            kind = {"d": "folder", "p": "pipe"}.get(stat.filemode(found.st_mode)[0], "device")
            raise RunError(f"{path} must be a regular file, got a {kind}")
        maximum = maximum or _memory()
        if found.st_size > maximum:
            raise RunError(f"{path} must have at most {maximum:,} bytes, got {found.st_size:,}")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


@functools.cache
def _memory():
    """The memory available to this process, in bytes."""
    sizes = [sys.maxsize]
    if hasattr(os, "sysconf"):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # missing, or "max"
            sizes.append(int(Path(path).read_text()))
    return min(sizes)


def size_of(file):
    """The size of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


def read_bytes(path, maximum=None):
    """The content of a regular file. Arguments and errors as for `open_regular`."""
    with open_regular(path, maximum) as file:
        return file.read(size_of(file))


def open_own(path, mode, second_names=False):
    """Opens a file in a folder that may be untrusted.

    A link could lead to another file of the user, so links are refused.

    Args:
        path: the file. If `mode` writes, a missing file is created.
        mode: of `open`, binary: "rb", "ab" or "ab+".
        second_names: whether the file may have hard links, as in some backups. Default False.

    Raises:
        OSError: it is a link, has a hard link, is not a regular file, or cannot be opened.
    """

    def opener(name, flags):
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)

    refused = f"{path} must be a file of its own, got"
    try:
        file = open(path, mode, opener=opener)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"{refused} a link") from error
        raise
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or (found.st_nlink > 1 and not second_names):
        file.close()
        raise OSError(f"{refused} a hard link or no file")
    return file


def is_file_name(name):
    """Whether a JSON value read from a file is the name of a file in the same folder."""
    return (
        isinstance(name, str)
        and name == Path(name).name
        and name != ".."
        and 0 < len(name.encode(errors="replace")) <= 255
        and name.isprintable()
    )


def read_json(path, kind=dict):
    """The content of a JSON file, without its checksum if it has one.

    Args:
        path: the file.
        kind: the expected type of the content, `dict` (default) or `list`.

    Raises:
        RunError: it is damaged: not JSON, nested too deep, of another type, or changed after its
            checksum was computed; or it cannot be read safely, see `read_bytes`.
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
    """Writes one text per line, by `write_atomically`."""
    write_atomically(path, "".join(f"{text}\n" for text in texts).encode())


def write_json(path, value, checked=False):
    """Writes a JSON file by `write_atomically`. With `checked`, an object gets its checksum."""
    if checked:
        value = {**value, CHECKSUM: checksum(value)}
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def checksum(value):
    """The sha256 of a JSON value. It does not depend on indentation or on the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def sync(*paths):
    """Writes the current content of files and folders to the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def pack(arrays):
    """Converts arrays by name to the bytes of an .npz file."""
    buffer = io.BytesIO()
    write_arrays(buffer, arrays)
    return buffer.getvalue()


def write_arrays(file, arrays):
    """Writes arrays by name to an open .npz file. NumPy's format has no bfloat16: such an array is
    stored by its bits, and its name there ends with `.bfloat16`."""
    stored = {}
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype == ml_dtypes.bfloat16:
            name, array = name + BFLOAT16, array.view("uint16")
        stored[name] = array
    np.savez(file, **stored)


def unpack(content):
    """Converts the bytes of an .npz file to arrays by name; those stored as bfloat16 become
    float32. Pickles and compression are refused, so the arrays are at most twice as large as the
    file.

    Raises:
        RunError: it is not an .npz file, or it is cut short.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            members = file.infolist()
        if any(one.compress_type for one in members):
            raise ValueError("its arrays must not be compressed")
        if sum(one.file_size for one in members) > len(content):
            raise ValueError("its arrays must each have bytes of their own")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            found = {name.removesuffix(BFLOAT16): _read(file, name) for name in file.files}
            if len(found) < len(file.files):
                raise ValueError("it must have each array once")
            return found
    except Exception as error:  # of many types, depending on the damaged byte
        raise RunError(f"no whole .npz file: {error}") from error


def _read(file, name):
    """An array of an .npz file; one stored as bfloat16 becomes float32."""
    array = file[name]
    if not name.endswith(BFLOAT16):
        return array
    if array.dtype != "uint16":
        raise ValueError(f"{name} must be of type uint16, got {array.dtype}")
    return array.view(ml_dtypes.bfloat16).astype("float32")


def read_arrays(path):
    """The arrays by name from a file written by `pack`.

    Raises:
        RunError: the file is damaged; the message names it.
        OSError: it cannot be read.
    """
    try:
        return unpack(read_bytes(path))
    except RunError as error:
        raise RunError(f"{path} is damaged: {error}") from error
