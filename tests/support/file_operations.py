"""Records the moments at which a process changes files, and sends it a signal at one of them.

`watch` is called in a child process, before its command: see `processes.begin`.
"""

import os
import sys

# Events that Python audits: which arguments are paths, and which are the fd of their folder.
PATHS = {
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def watch(folder, record, stop=None):
    """From here on, each file operation of this process under `folder` writes a line to `record`.

    Args:
        folder: whose files count.
        record: written anew; not under `folder`.
        stop: (n, signal): before the nth operation, from 0, the process sends itself the signal.

    Returns:
        A function of (what, path), to be called for operations that Python does not audit.
    """
    folder, own = os.path.realpath(folder), os.getpid()
    lines = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    seen = 0

    def note(what, path):
        nonlocal seen
        inside = path == folder or path.startswith(folder + os.sep)
        if not inside or os.getpid() != own:
            return
        os.write(lines, f"{what} {os.path.relpath(path, folder)}\n".encode())
        number, seen = seen, seen + 1
        if stop and number == stop[0]:
            os.kill(own, stop[1])

    def hook(event, arguments):
        if event == "open":
            path, _, flags = arguments
            if flags & WRITING and not isinstance(path, int):
                note("open", _absolute(path))
        elif event in PATHS:
            # The last path is the one that changes.
            place, place_of_folder = PATHS[event][-1]
            fd = None if place_of_folder is None else arguments[place_of_folder]
            note(event, _absolute(arguments[place], fd))

    def synced(fd, original=os.fsync):
        number = fd if isinstance(fd, int) else fd.fileno()
        note("os.fsync", os.readlink(f"/proc/self/fd/{number}"))
        return original(fd)

    sys.addaudithook(hook)
    os.fsync = synced
    return lambda what, path: note(what, _absolute(path))


def _absolute(path, fd=None):
    """With symbolic links resolved, except for the last part, which is what changes."""
    path = os.fsdecode(path)
    if fd is not None and fd >= 0 and not os.path.isabs(path):
        path = os.path.join(os.readlink(f"/proc/self/fd/{fd}"), path)
    head, tail = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(head), tail)
