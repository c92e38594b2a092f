"""Folders by their names on Hugging Face's hub."""

import re
from pathlib import Path

NAME = r"[\w.-]+/[\w.-]+"


def folder_of(name, files, weights):
    """The folder that is meant: one that is there, or one that is fetched by its name on the hub.

    Args:
        name: a folder, or a name as "Helsinki-NLP/opus-mt-en-de".
        files: the names of the files that are needed or may be there.
        weights: names of files of which the first that is there is enough.

    Raises:
        ValueError: there is no such folder, and it cannot be fetched.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    if not re.fullmatch(NAME, str(name)):
        raise ValueError(
            f"FOLDER must be a folder or a name on the hub, as ORGANISATION/MODEL, got {name}"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ValueError(
            f"FOLDER must be a folder, got {name}; to fetch that from the hub, huggingface_hub is "
            f"needed: pip install huggingface_hub ({error})"
        ) from error
    try:
        for one in weights:
            folder = Path(snapshot_download(str(name), allow_patterns=[*files, one]))
            if folder.joinpath(one).exists():
                break
    except Exception as error:  # of the library or of what it asks, of many types
        raise ValueError(f"{name} could not be fetched from the hub: {error}") from error
    return folder
