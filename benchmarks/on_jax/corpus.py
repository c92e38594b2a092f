"""Reads a corpus of `benchmarks.on_jax.pack` as ids."""

import functools
import json
import multiprocessing
import signal
import zipfile
import zlib

import numpy as np

from tfformer.files import RunError
from tfformer.text.sampling import SubwordSampler
from training.step.machine import cores

CHUNK = 2000  # texts of a process at once
NAMES = {
    "settings",
    "tokenizer",
    *(f"{a}-{b}" for a in ("train", "val") for b in ("source", "target")),
}


class Corpus:
    """A file of `pack`.

    Args:
        path: the file.

    Attributes:
        settings: the configuration of the model, "model", and the recipe's settings, "recipe".

    Raises:
        RunError: the file is damaged, or is not a file of `pack`.
        OSError: the file cannot be read.
    """

    def __init__(self, path):
        try:  # `pack` compresses it, which `read_arrays` refuses
            with np.load(path, allow_pickle=False) as file:
                content = {name: file[name].tobytes() for name in file.files}
        except (ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise RunError(f"{path} is damaged: {error}") from error
        if set(content) != NAMES:
            raise RunError(
                f"{path} must be a file of benchmarks.on_jax.pack, got {sorted(content)}"
            )
        self.settings, self.model = json.loads(content["settings"]), content["tokenizer"]
        self.texts = {name: lines.split(b"\n") for name, lines in content.items()}

    def ids(self, split, drawn, longest):
        """int16 [2, 1 + drawn, N, longest]: source and target, with eos, padded.

        Pairs with a longer source or target are left out.

        Args:
            split: "train" or "val".
            drawn: number of random segmentations besides the usual one, by the run's
                `subword_sampling`; without it there are none. If one is too long, the usual one
                replaces it.
            longest: maximum number of tokens.

        Raises:
            RunError: no pair is left.
        """
        alpha = self.settings["recipe"]["subword_sampling"]
        segment = functools.partial(
            _segmented, model=self.model, alpha=alpha, drawn=drawn if alpha else 0, longest=longest
        )
        sides = []
        with _processes() as pool:
            for side in ("source", "target"):
                texts = self.texts[f"{split}-{side}"]
                parts = [(n, texts[n : n + CHUNK]) for n in range(0, len(texts), CHUNK)]
                sides.append(np.concatenate(pool.map(segment, parts), axis=1))
        ids = np.stack(sides)
        ids = ids[:, :, (ids[:, 0, :, 0] > 0).all(axis=0)]
        if not ids.shape[2]:
            raise RunError(f"{split} must have pairs of at most {longest} tokens a side, got none")
        return ids


def _processes():
    """A process for each core. They ignore Ctrl-C; this process ends them."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by the processes
    try:
        return multiprocessing.get_context("spawn").Pool(cores())
    finally:
        signal.signal(signal.SIGINT, handler)


def _segmented(part, model, alpha, drawn, longest):
    """Segmentations int16 [1 + drawn, texts, longest] of (the number of the first, texts). The
    number is the seed. If the usual segmentation of a text is too long, its rows are zero."""
    first, texts = part
    sampler = SubwordSampler(model, alpha or 1.0)
    usual = [sampler.encoded(text) for text in texts]
    usual = [ids if len(ids) <= longest else [] for ids in usual]
    several = [usual, *(sampler(texts, longest, first + n) for n in range(drawn))]
    found = np.zeros((1 + drawn, len(texts), longest), "int16")
    for n, rows in enumerate(several):
        for m, ids in enumerate(rows):
            found[n, m, : len(ids)] = ids if usual[m] else 0
    return found
