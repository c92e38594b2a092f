"""What the processes of one test run make once and share."""

import fcntl
import os
import shutil


def once(tmp_path_factory, name, make):
    """The folder `name`, made by `make(folder)` in the first process that needs it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each process has its own folder beside the others
        root = root.parent
    folder, partial = root / name, root / f"partial-{name}"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(partial, ignore_errors=True)
            make(partial)
            partial.rename(folder)
    return folder
