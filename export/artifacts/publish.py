"""A version is made beside the others, and one rename makes it visible to the server."""

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from filelock import lock_descriptor

from export.artifacts.forms import FORMS

PREFIX = "partial-"
# What an export writes into its folder, before it publishes it.
PARTS = {"model", "report.json", *FORMS}


@contextlib.contextmanager
def scratch(directory):
    """A new folder in `directory`, for this process alone; afterwards it is gone.

    TensorFlow Serving looks only at folders whose name is a number. What exports that were killed
    have left is removed first: a folder that is locked belongs to one that is at work. On a disk
    without locks nothing is.
    """
    directory = Path(directory)
    sweep(directory)
    folder = handle = None
    while handle is None:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=directory))
        try:
            handle = _locked(folder)  # None: another export has just swept it
        except OSError:
            handle = os.open(folder, os.O_RDONLY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def sweep(directory):
    """Removes the folders of `scratch` that no process holds any more."""
    for folder in directory.glob(f"{PREFIX}*"):
        ours = re.fullmatch(rf"{PREFIX}[a-z0-9_]{{8}}", folder.name) and not folder.is_symlink()
        if not ours or not folder.is_dir():
            continue
        try:
            handle = _locked(folder)
            if handle is None:
                continue
            try:
                names = {path.name for path in folder.iterdir() if path.suffix != ".partial"}
                if names <= PARTS:
                    shutil.rmtree(folder)
            finally:
                os.close(handle)
        except OSError:  # not ours to remove, or gone by now
            continue


def _locked(folder):
    """A descriptor that locks a folder until it is closed; None if another process has the lock,
    or has removed the folder. A process that is killed gives the lock up."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if lock_descriptor(handle, blocking=False) and folder.exists():
            return handle
    except OSError:
        os.close(handle)
        raise
    os.close(handle)
    return None


def publish(model, report, directory, progress):
    """Renames `model` to the next version, and the report after it; returns the version.

    The report is on the disk before anything is visible: a full disk publishes nothing. Another
    exporter may be a step ahead.
    """
    from tfformer.files import sync, write_json

    beside = model.with_name("report.json")
    while True:
        taken = [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]
        version = directory / str(max(taken, default=0) + 1)
        report.directory = str(version)
        write_json(beside, report.to_dict())
        try:
            model.rename(version)
        except OSError:
            if not version.exists():
                raise
            continue
        break
    try:
        beside.replace(directory / f"{version.name}.report.json")
        sync(directory)
    except OSError as error:  # the model is served by now
        progress(f"warning: {version} is published, its report is not safe on the disk: {error}")
    return version
