"""Prepares a training once, before its first step: settings, tokenizer, corpus, initial weights.

The files are written to a temporary folder that is then renamed, so a run has all of them or none.
They do not change when the run is resumed. `corpus.json` records where everything comes from, for
the model card.
"""

import dataclasses
import hashlib
import os
import shutil
from pathlib import Path

from tfformer.files import (
    CHECKSUM,
    RunError,
    read_bytes,
    read_json,
    sync,
    write_atomically,
    write_json,
)
from tfformer.terminal.progress_bar import Bar
from tfformer.text.tokenizer import FILES, SIDES, Tokenizer

from ..data.noise import Noise
from ..data.reader import CorpusReport
from ..recipe import SETTLED_BY_INIT, TRANSLATION, options, plan
from ..recipe.rules import require_vocabulary
from ..tasks import TASKS
from .distillation import distilled
from .initialisation import (
    NO_RUNS,
    WHOLE,
    beginning,
    read_init_configuration,
    take_over,
)
from .teachers import keep_teachers

PREPARED = "prepared"
CORPUS = "corpus.json"
SETTINGS = "recipe.json"
# Messages about the use of other runs.
DOES = {
    "init": "beginning with {} ...",
    "encoder": "beginning with the encoder of {} ...",
    "decoder": "beginning with the decoder of {} ...",
    "teacher": "the targets are translations by {} ...",
    "teachers": "beside the targets it learns how likely each token is to {} ...",
}
# All texts of a split; older runs store only the sha256 of these files.
TEXT = {"train": "train/text.bin", "val": "val/text.bin"}


def prepare(folder, recipe, data, say, runs=NO_RUNS):
    """Writes settings, tokenizer, corpus, and what is taken over from other `runs`, into `folder`.

    `data` is the folder of the recipe's corpus, or None. The folder appears when it is complete.

    Raises:
        RunError, CorpusError, ValueError: nothing is left behind.
    """
    task, partial = TASKS[recipe.task], folder.with_name(f"{PREPARED}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:

        def cleaned(split, report):
            return task.clean(recipe.read(split, data, report), report, recipe)

        def side(name):
            report = CorpusReport(unit=task.unit)
            yield from (getattr(pair, name) for pair in cleaned("train", report))
            report.require_some("the training corpus")

        def learn():
            say("learning the vocabulary ...")
            with Bar("learning the vocabulary", unit="texts") as bar:
                sides = (bar.over(side(name)) for name in SIDES)
                return task.vocabulary(*sides, recipe)

        for what, named in runs._asdict().items():
            if named:
                names = named if what == "teachers" else [named]
                say(DOES[what].format(", ".join(map(str, names))))
        tokenizer = take_over(partial, runs, recipe, side, learn)
        # A vocabulary that came with `init` may not allow the recipe's settings.
        require_vocabulary(recipe, tokenizer.is_shared)
        if runs.teachers:
            config = beginning(partial, task, recipe, tokenizer).config
            keep_teachers(partial, runs.teachers, config, recipe)
        Noise(tokenizer, recipe.subword_sampling)
        for name in SIDES:
            own = getattr(tokenizer, name)
            write_atomically(partial / f"{name}{own.suffix}", own.content)
        facts = {"origin": recipe.origin, **runs.facts()}
        for split in ("train", "val"):
            report = CorpusReport(unit=task.unit)
            pairs = cleaned(split, report)
            if split == "train" and runs.teacher is not None:
                pairs = distilled(pairs, runs.teacher, report)
            with Bar(f"preparing {split}", unit=f"{task.unit}s") as bar:
                pairs = bar.over(pairs)
                task.write_corpus(
                    partial / split, pairs, tokenizer, recipe.max_tokens, report, split
                )
            say(f"{split}: {report}")
            facts[split] = dataclasses.asdict(report)
        if recipe.choose:
            corpus = task.corpus(partial / "train")
            names, recipe = recipe.choose, plan.chosen(recipe, task, corpus, tokenizer)
            found = (f"--{name.replace('_', '-')} {getattr(recipe, name)}" for name in names)
            say(f"chosen from the corpus: {', '.join(found)}")
        write_json(partial / SETTINGS, _settings(partial, recipe), checked=True)
        facts["files"] = _checksums(partial)
        for split in ("train", "val"):
            facts[split]["sha256"] = facts["files"][f"{split}/{task.corpus.content}"]
        write_json(partial / CORPUS, facts, checked=True)
        sync(*partial.rglob("*"), partial)
        os.replace(partial, folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def require_undamaged(folder):
    """Compares each prepared file with its checksum, and adds checksums that an older run lacks.

    Older runs store only the checksums of their texts. `recipe.json` and `corpus.json` contain
    their own checksums, which are compared when they are read.
    """
    try:
        facts = read_json(folder / CORPUS)
    except FileNotFoundError as error:
        if CHECKSUM.encode() in (folder / SETTINGS).read_bytes():
            raise RunError(f"{folder / CORPUS} is missing") from error
        return  # the run was started before this file existed
    try:
        known = facts.get("files") or {TEXT[split]: facts[split]["sha256"] for split in TEXT}
        expected = {name: str(digest) for name, digest in known.items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise RunError(f"{folder / CORPUS} is damaged: {error!r}") from error
    found = _checksums(folder)
    for name, digest in expected.items():
        if found.get(name) != digest:
            what = "is damaged" if name in found else "is missing"
            raise RunError(
                f"{folder / name} {what}: its sha256 must be {digest}, got {found.get(name)}"
            )
    if "files" not in facts:
        settings = read_json(folder / SETTINGS)
        write_json(folder / SETTINGS, settings, checked=True)
        write_json(folder / CORPUS, {**facts, "files": found}, checked=True)


def _checksums(folder):
    """{path in the folder: sha256} of all prepared files except the two that contain their own."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in paths if path.suffix != ".partial"]
    found = {}
    for name in names:
        if name not in (SETTINGS, CORPUS):
            with open(folder / name, "rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def read_tokenizer(folder):
    """The prepared tokenizer. Source and target each have a file, even if both are the same."""
    paths = [path for name in FILES if (path := Path(folder) / name).exists()]
    files = {path.name: read_bytes(path) for path in paths}
    try:
        if missing := [side for side in SIDES if not any(name.startswith(side) for name in files)]:
            raise ValueError(f"there is no file of the {missing[0]}'s vocabulary")
        return Tokenizer.from_files(files)
    except ValueError as error:
        raise RunError(f"{folder} is damaged: {error}") from error


def read_settings(directory, recipe):
    """The recipe with the settings that a run was started with.

    Settings that did not exist when the run was started have no effect, whatever the recipe has
    now. A run that was never started is a RunError.
    """
    path = Path(directory) / PREPARED / SETTINGS
    try:
        settings = read_json(path)
    except FileNotFoundError as error:
        raise RunError(f"{directory} has no training to resume") from error
    later = {name: value for name, *_, value in options() if name not in SETTLED_BY_INIT}
    later |= {"cores": 1, "task": TRANSLATION, "search": {}, "profile": "none"}
    try:
        return dataclasses.replace(recipe, **{**later, **settings})
    except TypeError as error:
        raise RunError(f"{path} is of another version: {error}") from error


def read_sizes(directory, recipe):
    """The model fields that a run was started with, by name: they can no longer change.

    `recipe` is that of `read_settings`.
    """
    task = TASKS[recipe.task]
    config = read_init_configuration(Path(directory) / PREPARED, task)
    if config is None:
        config = task.configuration(recipe, recipe.vocabulary_size, shared=recipe.shared_vocabulary)
    return config.to_dict()


def read_facts(directory):
    """The origin of a run's corpus, in words or None; and what it has taken over from other runs,
    in the form of `Runs.facts`."""
    path = Path(directory) / PREPARED / CORPUS
    facts = read_json(path) if path.exists() else {}
    return facts.get("origin"), {name: facts.get(name) for name in NO_RUNS.facts()}


def write_settings(directory, recipe):
    """Stores settings that were changed when a run was resumed."""
    folder = Path(directory) / PREPARED
    write_json(folder / SETTINGS, _settings(folder, recipe), checked=True)


def _settings(folder, recipe):
    """The recipe's settings, except those that the run of `--init` determines."""
    settled = SETTLED_BY_INIT if (folder / WHOLE).exists() else ()
    return {name: value for name, value in recipe.settings().items() if name not in settled}
