"""The stored folders of T5 models, and what the original says of them."""

import json
import shutil

import numpy as np
from paths import DATA

from tfformer.config import BOS, EOS, UNK

FOLDERS = ("t5", "flan", "mt5", "madlad", "umt5")


def folder(name):
    return DATA / "t5" / name


def answers(name):
    return json.loads((folder(name) / "answers.json").read_text())


def logits(name):
    """[T, V] of each of the first pairs, by the original's ids."""
    with np.load(folder(name) / "logits.npz") as file:
        return [file[str(n)] for n in range(len(file.files))]


def copied(name, to):
    """A folder of one's own."""
    return shutil.copytree(folder(name), to)


def our_ids(ids):
    """Ids of the original as ours: its pad, which begins a target, is our bos."""
    return [{0: BOS, 1: EOS, 2: UNK}.get(n, n + 1) for n in ids]
