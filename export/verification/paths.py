"""Finds a SavedModel and its requests. Needs no TensorFlow import, so wrong paths fail at once."""

import json
import os
from pathlib import Path

from .errors import UsageError


def find_saved_model(directory) -> Path:
    """The SavedModel: `directory` itself, or the newest version in a base directory."""
    path = Path(directory)
    if not path.exists():
        raise UsageError(f"directory must exist, got {str(path)!r}")
    if not path.is_dir():
        raise UsageError(f"directory must be a folder, got the file {str(path)!r}")
    if (path / "saved_model.pb").is_file():
        return path
    versions = [file.parent for file in path.glob("*/saved_model.pb")]
    versions = [version for version in versions if version.name.isdecimal()]
    if not versions:
        raise UsageError(
            "directory must hold a saved_model.pb or numbered versions with one,"
            f" {str(path)!r} holds neither"
        )
    return max(versions, key=lambda version: int(version.name))


def require_model(name, base_path):
    """Raises a UsageError if a model has no name, or its base path is no folder."""
    # Not `Path`: `Path("")` is the working directory, and `Path.is_dir` may raise if a name is
    # too long.
    if not name or not os.path.isdir(base_path):
        raise UsageError(
            f"a model needs a name and a base_path that is a folder, got name {str(name)!r} and "
            f"base_path {str(base_path)!r}"
        )


def read_requests(path) -> dict[str, list[dict]]:
    """Reads {signature: requests} from a JSON file."""
    try:
        requests = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--requests must be a JSON file, {path!r}: {error}") from error
    if not isinstance(requests, dict):
        raise UsageError(f"--requests must hold {{signature: [request, ...]}}, {path!r} does not")
    return requests
