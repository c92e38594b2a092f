"""Folders of small original models in tests/data, with the results of the originals."""

import json
import shutil

import numpy as np
from paths import DATA


class Stored:
    """The folders in tests/data/ROOT."""

    def __init__(self, root="."):
        self.root = DATA / root

    def folder(self, name):
        return self.root / name

    def answers(self, name):
        return json.loads((self.folder(name) / "answers.json").read_text())

    def logits(self, name):
        """[T, V] of each of the first pairs or prompts, by the original's ids."""
        with np.load(self.folder(name) / "logits.npz") as file:
            return [file[str(n)] for n in range(len(file.files))]

    def copied(self, name, to):
        """A copy of a folder."""
        return shutil.copytree(self.folder(name), to)
