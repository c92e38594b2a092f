"""Folders by their names on Hugging Face's hub."""

import re
import sys
from pathlib import Path

NAME = r"([\w.-]+/[\w.-]+)(?:@([\w.-]+))?"


def require_folder(name):
    """Raises a ValueError for what is no folder, and no name on the hub either."""
    folder = Path(name)
    # (A mistyped folder is not fetched.)
    if not folder.is_dir() and (not re.fullmatch(NAME, str(name)) or folder.parent.is_dir()):
        raise ValueError(
            f"FOLDER must be a folder or a name on the hub, as ORGANISATION/MODEL, got {name}"
        )


def folder_of(name, files, weights):
    """The folder that is meant: one that is there, or one that is fetched by its name on the hub.

    Args:
        name: a folder, or a name as "Helsinki-NLP/opus-mt-en-de", behind which @ may name a
            revision.
        files: the names of the files that are needed or may be there.
        weights: names of files of which the first that is there is enough.

    Raises:
        ValueError: there is no such folder, and it cannot be fetched.
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
    except Exception as error:  # of the library or of what it asks, of many types
        raise ValueError(f"{name} could not be fetched from the hub: {error}") from error
    return folder
