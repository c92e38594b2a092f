"""Reads folders of Hugging Face, each by the importer of its family.

An importer is a module of `recognise.MODULES` with `read(folder)`, which returns an `Imported`, and
the names of the files that it reads besides the weights: `NEEDED` and `OTHERS`.
"""

import importlib
import inspect
from pathlib import Path

from .options import read_json_object
from .recognise import MODULES, described


def read(folder, family=None, **languages):
    """Reads a folder of Hugging Face into an `Imported`.

    Args:
        folder: its path.
        family: the only `model_type` to be read. Default: all.
        **languages: `source_language` and `target_language`, the defaults of a multilingual model.

    Raises:
        ValueError: no importer reads its family, a file is missing or damaged, or an option has no
            counterpart here.
        OSError: a file cannot be read.
    """
    path = Path(folder, "config.json")
    found = read_json_object(path).get("model_type") if path.exists() else None
    known = _known(family)
    if found not in tuple(known):  # a tuple, because `found` may be unhashable
        raise ValueError(
            f"{folder} must be a model of {' or '.join(known)} (config.json: model_type), got "
            f"{described(folder)}"
        )
    read_folder = _module(known[found]).read
    languages = {name: one for name, one in languages.items() if one is not None}
    if unknown := sorted(set(languages) - set(inspect.signature(read_folder).parameters)):
        raise ValueError(
            f"{unknown[0]} must be None for the family {found!r}, which is not multilingual, got "
            f"{languages[unknown[0]]!r}"
        )
    return read_folder(folder, **languages)


def files(family=None):
    """The names of the files to download, besides the weights; any may be missing."""
    modules = [_module(name) for name in set(_known(family).values())]
    return sorted({name for module in modules for name in (*module.NEEDED, *module.OTHERS)})


def _known(family):
    return MODULES if family is None else {family: MODULES[family]}


def _module(name):
    return importlib.import_module(f".{name}", __package__)
