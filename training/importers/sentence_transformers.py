"""Reads how a folder of sentence-transformers makes a vector of the states of a text's tokens."""

import json
from pathlib import Path

from tfformer.files import LONGEST_TEXT, read_bytes

from .options import read_json_object, require_whole

MODULES, POOLING = "modules.json", "1_Pooling/config.json"
PROMPTS = "config_sentence_transformers.json"
FILES = (MODULES, POOLING, PROMPTS, "sentence_bert_config.json")
# The modules of a folder in order, by the ends of the names of their classes.
KNOWN = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
# The poolings of sentence-transformers, and ours.
POOLINGS = {"pooling_mode_cls_token": "bos", "pooling_mode_mean_tokens": "mean"}


def read_pooling(folder):
    """The options of an `EmbedderConfig`, and the maximum number of tokens without bos.

    The number is None if the folder sets none. Both are None for a folder without modules.json.

    Raises:
        ValueError: a module or a pooling has no counterpart here.
    """
    folder = Path(folder)
    if not (folder / MODULES).exists():
        return None, None
    rows = _rows(folder / MODULES)
    kinds = [row["type"].rsplit(".", 1)[-1] for row in rows]
    if kinds not in KNOWN or rows[0]["path"]:
        raise ValueError(f"{folder / MODULES} must have modules of {KNOWN}, got {kinds}")
    path = folder / rows[1]["path"] / "config.json"
    if path != folder / POOLING or not path.exists():
        raise ValueError(f"{folder} must have {POOLING}, got none")
    found = read_json_object(path)
    modes = [name for name in found if name.startswith("pooling_mode_") and found[name]]
    if isinstance(found.get("pooling_mode"), str):  # as newer versions write it
        modes = [f"pooling_mode_{found['pooling_mode']}_token"]
        modes = [name if name in POOLINGS else f"{name}s" for name in modes]
    prompts = folder / PROMPTS
    named = read_json_object(prompts).get("default_prompt_name") if prompts.exists() else None
    if named is not None:
        raise ValueError(f"{prompts}: default_prompt_name must be null, got {named!r:.99}")
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ValueError(f"{path} must have one of {list(POOLINGS)}, got {modes}")
    return {"pooling": POOLINGS[modes[0]], "normalize": len(kinds) == 3}, _longest(folder)


def _longest(folder):
    path = folder / "sentence_bert_config.json"
    found = read_json_object(path) if path.exists() else {}
    if found.get("do_lower_case"):
        raise ValueError(f"{path}: do_lower_case must be false, got true")
    if found.get("max_seq_length") is None:
        return None
    require_whole(found, path, ["max_seq_length"])
    if found["max_seq_length"] < 3:
        longest = found["max_seq_length"]
        raise ValueError(f"{path}: max_seq_length must be at least 3, got {longest}")
    return found["max_seq_length"] - 1


def _rows(path):
    """The modules of a folder: a list of objects with strings `type` and `path`."""
    try:
        rows = json.loads(read_bytes(path, LONGEST_TEXT))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    names = ("type", "path")
    if not isinstance(rows, list) or not rows or not all(
        isinstance(row, dict) and all(isinstance(row.get(name), str) for name in names)
        for row in rows
    ):  # fmt: skip
        raise ValueError(f"{path} must be a list of modules, each with a type and a path")
    return rows
