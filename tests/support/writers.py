"""Each command that writes or prints something, with arguments for a folder."""

import gzip
import shutil
from pathlib import Path
from types import SimpleNamespace

import opennmt_folders
import tiny
from paths import DATA
from workers import RECIPE

from training.multi30k import SPLITS

TRAIN = ["--cores=1", "--r-drop=0", "--both-ways=0", "--batch-tokens=512", "--checkpoint-steps=3"]
TEST_SET = ["--recipe", RECIPE, "--split", "val"]
# Comparisons write nothing, so they are skipped, and one signature is enough.
SHORT_EXPORT = """
from export import saved_model
from export.verification.graph import read_graph, read_variables
from export.verification.report import Report

def check(service, names, model, *_):
    graph = read_graph(model)
    return Report(str(model), graph=graph, weights=read_variables(model, graph))

write = saved_model.write
saved_model.write = lambda service, names, model: write(service, ["serving_default"], model)
saved_model.check = check
"""


class Writer:
    """A command in a folder.

    Args:
        words: a function of (the given files, the folder): its arguments.
        prints: its result is on standard output; a closed one is an error.
        there: a function of (the given files, the folder) that writes what the command changes.
        reads: its standard input.
        before: a Python program that its process runs first.
        files: whether it writes any files.
    """

    def __init__(self, words, prints=False, there=None, reads="", before="", files=True):
        self.words, self.prints, self.reads = words, prints, reads
        self.before, self.files, self._there = before, files, there

    def put(self, given, folder):
        folder.mkdir()
        if self._there:
            self._there(given, folder)


def run_there(given, folder):
    shutil.copytree(given.run, folder / "run")


def version_there(given, folder):
    shutil.copytree(given.model, folder / "base" / "1")


def half_run_there(given, folder):
    shutil.copytree(given.half, folder / "run")


WRITERS = {
    "training.train": Writer(
        lambda given, folder: [RECIPE, "--run", folder / "run", "--resume", "--epochs=1", *TRAIN]
    ),
    "training.train --resume": Writer(
        lambda given, folder: [RECIPE, "--run", folder / "run", "--resume", "--epochs=2"],
        there=half_run_there,
    ),
    "training.train --print-config": Writer(
        lambda given, folder: [RECIPE, "--print-config"], prints=True, files=False
    ),
    "training.multi30k": Writer(
        lambda given, folder: [
            folder / "data", "--base-url", given.url, "--languages", "fr", "cs"
        ],
    ),
    "training.dates": Writer(lambda given, folder: [], prints=True, files=False),
    "training.facts": Writer(lambda given, folder: [], prints=True, files=False),
    "training.rooms": Writer(lambda given, folder: [], prints=True, files=False),
    "training.names": Writer(lambda given, folder: [], prints=True, files=False),
    "training.import_hf": Writer(
        lambda given, folder: [DATA / "marian" / "joint", folder / "run"]
    ),
    "training.import_marian": Writer(
        lambda given, folder: [DATA / "marian" / "joint", folder / "run"]
    ),
    "training.import_opennmt": Writer(
        lambda given, folder: opennmt_folders.words("words", folder / "run")
    ),
    "training.average": Writer(
        lambda given, folder: [given.tiny, given.tiny, "--out", folder / "run"],
    ),
    "training.inspect": Writer(
        lambda given, folder: [
            given.source, given.target, "--run", given.run, "--out", folder / "out",
            "--clean", folder / "clean",
        ],
        prints=True,
    ),
    "training.shortlist": Writer(
        lambda given, folder: [
            given.run, "--source", given.source, "--target", given.target,
            "--out", folder / "short.npz",
        ],
    ),
    "training.evaluate": Writer(
        lambda given, folder: [
            folder / "run", *TEST_SET, "--greedy", "--translations", folder / "translations.txt"
        ],
        prints=True, there=run_there,
    ),
    "training.diversify": Writer(
        lambda given, folder: [
            "--source", given.source, "--target", given.target, "--forward", given.tiny,
            "--out", folder / "out",
        ],
        prints=True,
    ),
    "training.compare": Writer(
        lambda given, folder: [given.run, given.half, *TEST_SET, "--out", folder / "out"],
        prints=True,
    ),
    "training.picture": Writer(
        lambda given, folder: [
            given.tiny, "a lake", "--target", "the trees", "--out", folder / "out",
        ],
        prints=True,
    ),
    "training.translate": Writer(
        lambda given, folder: [given.run, "--picture", folder / "attention.png"],
        prints=True, reads="abc\nde\n",
    ),
    "export.saved_model": Writer(
        lambda given, folder: [given.tiny, folder / "base"],
        there=version_there, before=SHORT_EXPORT,
    ),
    "export.ctranslate2": Writer(lambda given, folder: [given.tiny, folder / "model"]),
    "export.page": Writer(lambda given, folder: [given.tiny, folder / "page.html"]),
    "export.verify": Writer(
        lambda given, folder: [given.model, "--report", folder / "report.json"], prints=True
    ),
    "export.translate": Writer(
        lambda given, folder: [given.model], prints=True, reads="a house\n", files=False
    ),
    "export.translate_files": Writer(
        lambda given, folder: [given.model, folder / "out", given.source, given.packed],
    ),
}  # fmt: skip
# The reasons why other commands are not listed.
ELSEWHERE = {
    "export.keras_hub": "it writes by the functions of export.saved_model",
    "export.client": "tests/export/test_client_hostile.py",
    "export.local_server": "it writes no file, and answers by its ports",
    "export.playground": "it writes no file, and answers by its port",
}


def make_given(folder, model, write=True):
    """Makes the given files in a folder; `model` is a served version.

    With `write`, everything but the runs is made.
    """
    given = SimpleNamespace(
        run=folder / "run", half=folder / "half", tiny=folder / "tiny", model=Path(model),
        source=folder / "source.txt", target=folder / "target.txt", packed=folder / "packed.gz",
        home=folder / "home",
    )  # fmt: skip
    if not write:
        return given
    given.home.mkdir(parents=True)
    texts = tiny.sentences(17, maximum=3)
    given.source.write_text("".join(f"{text}\n" for text in texts))
    given.target.write_text("".join(f"{text[::-1]}\n" for text in texts))
    given.packed.write_bytes(gzip.compress(given.target.read_bytes(), mtime=0))
    for split, lines in SPLITS.items():
        for language in ("fr", "cs"):
            path = given.home / f"{split}.{language}.gz"
            path.write_bytes(gzip.compress(f"{language}\n".encode() * lines, mtime=0))
    return given
