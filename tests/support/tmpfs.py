"""A small disk in memory, in its own name space; it ends with its process."""

import contextlib
import os
import subprocess
from pathlib import Path

# A process that uses the disk runs this first; it must have one thread.
JOIN = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.setns(os.open("/proc/{pid}/ns/mnt", os.O_RDONLY), 0x00020000):
    raise OSError(ctypes.get_errno(), "setns")
"""


class Tmpfs:
    """A disk that is mounted on `path` for its process, and for processes that run `join` first.

    Attributes:
        path: its path in these processes.
        seen: its path in all others.
        join: a Python program.
    """

    def __init__(self, path, pid):
        self.path = Path(path)
        self.seen, self.join = Path(f"/proc/{pid}/root{self.path}"), JOIN.format(pid=pid)

    @contextlib.contextmanager
    def room(self, size):
        """In this context, at most `size` bytes are free."""
        free = os.statvfs(self.seen)
        filler = self.seen / "filler"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(free.f_bavail * free.f_frsize - size, 1))
        try:
            yield
        finally:
            filler.unlink()


@contextlib.contextmanager
def mounted(path, size):
    """A `Tmpfs` of `size` bytes; None if mounting is not allowed."""
    mount = 'mount -t tmpfs -o size="$2" none "$1" && echo mounted && exec cat >/dev/null'
    try:
        holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", mount, "sh", str(path), str(size)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
    except FileNotFoundError:
        yield None
        return
    with holder:
        yield Tmpfs(path, holder.pid) if holder.stdout.readline() else None
