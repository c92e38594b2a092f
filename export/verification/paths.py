"""Where a SavedModel and its requests are; TensorFlow is not needed, so a slip is said at once."""

import json
import os
from pathlib import Path

from export.verification.errors import UsageError


def find_saved_model(directory) -> Path:
    """The SavedModel itself: `directory`, or the newest version in a base directory of versions."""
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
    """Raises a UsageError unless a model has a name, and a folder of versions."""
    # Not `Path`: of nothing it makes the working directory, and asks the system whether a name
    # that is too long is one.
    if not name or not os.path.isdir(base_path):
        raise UsageError(
            f"a model needs a name and a base_path that is a folder, got name {str(name)!r} and "
            f"base_path {str(base_path)!r}"
        )


def read_requests(path) -> dict[str, list[dict]]:
    """The requests of a JSON file, by the names of their signatures."""
    try:
        requests = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--requests must be a JSON file, {path!r}: {error}") from error
    if not isinstance(requests, dict):
        raise UsageError(f"--requests must hold {{signature: [request, ...]}}, {path!r} does not")
    return requests
