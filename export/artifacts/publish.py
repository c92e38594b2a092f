"""Publishes a version: it is written beside the others, and one rename makes it visible."""

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from tfformer.files import locked, sync, write_json

from .forms import FORMS

PREFIX = "partial-"
# What an export writes into its scratch folder before it publishes.
PARTS = {"model", "report.json", *FORMS}


@contextlib.contextmanager
def scratch(directory):
    """A new folder in `directory` that only this process uses. It is removed after the block.

    First, the folders of killed exports are removed, unless the disk does not support locks.
    TensorFlow Serving ignores folders whose name is no number.
    """
    directory = Path(directory)
    sweep(directory)
    folder = handle = None
    while handle is None:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=directory))
        try:
            handle = locked(folder)  # None: another export has just removed it
        except OSError:
            handle = os.open(folder, os.O_RDONLY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def sweep(directory):
    """Removes the folders of `scratch` that no process locks any more."""
    for folder in directory.glob(f"{PREFIX}*"):
        ours = re.fullmatch(rf"{PREFIX}[a-z0-9_]{{8}}", folder.name) and not folder.is_symlink()
        if not ours or not folder.is_dir():
            continue
        try:
            handle = locked(folder)
            if handle is None:
                continue
            try:
                names = {path.name for path in folder.iterdir() if path.suffix != ".partial"}
                if names <= PARTS:
                    shutil.rmtree(folder)
            finally:
                os.close(handle)
        except OSError:  # we may not remove it, or it no longer exists
            continue


def publish(model, report, directory, progress):
    """Renames `model` to the next version, then renames the report. Returns the version.

    The report is written first, so a full disk publishes nothing. If another export takes the
    number first, the next number is tried.
    """
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
    except OSError as error:  # the model is already published
        progress(f"warning: {version} is published, its report is not safe on the disk: {error}")
    return version
