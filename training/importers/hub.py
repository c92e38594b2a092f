"""Finds a model folder, or downloads it from the Hugging Face Hub by its name."""

import re
import sys
from pathlib import Path

NAME = r"([\w.-]+/[\w.-]+)(?:@([\w.-]+))?"


def require_folder(name):
    """Raises a ValueError if `name` is neither a folder nor a possible name on the hub."""
    folder = Path(name)
    # If the parent folder exists, `name` is a mistyped folder and is not downloaded.
    if not folder.is_dir() and (not re.fullmatch(NAME, str(name)) or folder.parent.is_dir()):
        raise ValueError(
            f"FOLDER must be a folder or a name on the hub, as ORGANISATION/MODEL, got {name}"
        )


def folder_of(name, files, weights):
    """The folder `name`, or the downloaded folder if `name` is a name on the hub.

    Of the `files`, any may be missing; of the `weights`, the first one that exists is enough. If it
    cannot be downloaded, ValueError is raised.
    """
    require_folder(name)
    folder = Path(name)
    if folder.is_dir():
        return folder
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ValueError(
            f"FOLDER must be a folder, got {name}; to fetch that from the hub, huggingface_hub is "
            f"needed: pip install huggingface_hub ({error})"
        ) from error
    repository, revision = re.fullmatch(NAME, str(name)).groups()
    print(f"fetching {name} from the hub of Hugging Face ...", file=sys.stderr)
    try:
        for one in weights:
            found = snapshot_download(repository, revision=revision, allow_patterns=[*files, one])
            folder = Path(found)
            if folder.joinpath(one).exists():
                break
    except Exception as error:  # errors of the library and of the network have many types
        raise ValueError(f"{name} could not be fetched from the hub: {error}") from error
    return folder
