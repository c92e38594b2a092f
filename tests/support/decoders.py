"""The stored folders of GPT-2, Llama and their relatives, and what the originals say of them."""

import json
import shutil

import numpy as np
from paths import DATA

from tfformer.config import EOS

FOLDERS = ("gpt2", "gpt2-inner", "llama", "qwen2", "wide", "biased")
NEW = 24  # tokens of a stored continuation


def folder(name):
    return DATA / "decoders" / name


def answers(name):
    return json.loads((folder(name) / "answers.json").read_text())


def logits(name):
    """[T, V] of the beginnings of some prompts, by the original's ids."""
    with np.load(folder(name) / "logits.npz") as file:
        return [file[str(n)] for n in range(len(file.files))]


def copied(name, to):
    """A folder of one's own."""
    return shutil.copytree(folder(name), to)


def our_ids(ids, eos):
    """Ids of the original as ours; `eos` is the original's."""
    return [EOS if n == eos else 4 + n for n in ids]
