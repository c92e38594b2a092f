"""Kills or interrupts a command at each file operation, then runs the same command again.

The result must be that of a command that was never stopped, with no files left over.
"""

import csv
import gzip
import hashlib
import itertools
import json
import shutil
import signal

import numpy as np
import processes
import pytest
import tensorflow as tf
import tiny
from shared import once
from workers import RECIPE, last_state
from writers import SHORT_EXPORT

from tfformer import run

# The exit code of a process stopped by a signal that it cannot catch, and by those that it can.
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
# `make test-slow` tries one of this number of cases, `make test-hostile` all of them.
CORE = 61
# Five batches an epoch; the last two epochs are averaged.
OPTIONS = ["--cores=1", "--epochs=2", "--r-drop=0", "--batch-tokens=512", "--checkpoint-steps=3"]


def ended(module, arguments, folder, record, stop=None, before=""):
    """(exit code, output) of a command, whose file operations under `folder` are counted.

    `stop` is (the number of an operation, the signal that comes before it).
    """
    stop = stop and (stop[0], int(stop[1]))
    watch = f"from file_operations import watch; note = watch({str(folder)!r}, {str(record)!r}, "
    return processes.ended(module, arguments, before=f"{watch}{stop})\n{before}")


def operations(record):
    return record.read_text().splitlines()


def every(record, step=4):
    """Each operation with a kill, and each `step`th with a signal that the command can catch.

    After a sync, the files are those before it, so a kill there is left out.
    """
    done = operations(record)
    kills = [n for n in range(len(done)) if not n or not done[n - 1].startswith("os.fsync")]
    seen = itertools.cycle([signal.SIGTERM, signal.SIGINT])
    signals = zip(range(0, len(done), step), seen, strict=False)
    return [*((n, signal.SIGKILL) for n in kills), *signals]


def wrong_with_stop(code, said, number):
    """The faults in how a stopped command ended."""
    lines = [line for line in said.splitlines() if "error: " in line or "stopped by" in line]
    if code != CODES[number]:
        yield f"exit code {code}: {said[-500:]}"
    elif number != signal.SIGKILL and len(lines) != 1:
        yield f"{len(lines)} lines: {lines}"
    if "Traceback" in said or "Exception ignored" in said:
        yield f"a traceback: {said[-2000:]}"


def wrong_with_end(code, said, folder):
    """The faults in how a command finished, with files left over in its folder."""
    if code != 0 or "error: " in said or "Traceback" in said:
        yield f"began again, exit code {code}: {said[-2000:]}"
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    left = [name for name in names if "partial" in name or name.endswith((".tmp", ".part"))]
    if left:
        yield f"left over: {left}"


def hold(tmp_path, chosen, record, faults):
    """Tries the cases and lists the faults of all."""
    found, failed, done = [], 0, operations(record)
    for case, (place, number) in enumerate(chosen):
        folder = tmp_path / str(case)
        folder.mkdir()
        wrong = list(faults(folder, place, number))
        failed += bool(wrong)
        name = signal.Signals(number).name
        found += [f"{name} before operation {place}, {done[place]}: {one}" for one in wrong]
        shutil.rmtree(folder)
    print(f"{len(chosen)} tried, {len(chosen) - failed} held", *found, sep="\n")
    return found


# A training.


def train(directory, record, stop=None):
    arguments = [RECIPE, "--run", directory, "--resume", *OPTIONS]
    return ended("training.train", arguments, directory, record, stop)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A training that was not stopped, in `run`, and its file operations."""

    def make(folder):
        folder.mkdir()
        code, said = train(folder / "run", folder / "record")
        assert code == 0, said

    return once(tmp_path_factory, "trained", make)


def differences(ours, expected):
    """The differences of a run from another one, except dates, speed and number of sessions."""
    if not (ours / "config.json").exists():
        yield "no model"
        return
    (arrays, progress), (others, other_progress) = last_state(ours), last_state(expected)
    if progress != other_progress:
        yield f"progress: {progress}"
    unlike = [name for name in others if not np.array_equal(arrays.get(name), others[name])]
    if unlike or arrays.keys() != others.keys():
        yield f"state: {unlike}"
    if run.read_config(ours) != run.read_config(expected):
        yield "config.json"
    for folder, pattern in ((".", "weights-*"), ("checkpoints", "epoch-*"), ("prepared", "**/*")):
        if hashes(ours / folder, pattern) != hashes(expected / folder, pattern):
            yield f"{folder}/{pattern}"
    if rows(ours) != rows(expected):
        yield f"log.csv: {rows(ours)}"


def hashes(folder, pattern="**/*"):
    paths = (path for path in folder.glob(pattern) if path.is_file())
    digests = ((path, hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths)
    return {path.relative_to(folder).as_posix(): digest for path, digest in digests}


def rows(directory):
    with (directory / "log.csv").open() as file:
        found = list(csv.DictReader(file))
    for row in found:
        del row["seconds"], row["tokens_per_second"]
    return found


def faults_of_training(trained):
    def faults(folder, place, number):
        ours, record = folder / "run", folder / "record"
        code, said = train(ours, record, (place, number))
        if code == 0 and number != signal.SIGKILL:  # the signal came after the last batch
            yield from differences(ours, trained / "run")
        else:
            yield from wrong_with_stop(code, said, number)
        if number == signal.SIGKILL and place % 8 == 0:  # killed again after it has resumed
            again = 1 + place // 8 % 6  # it has at least seven operations
            yield from wrong_with_stop(*train(ours, record, (again, number)), number)
        code, said = train(ours, record)
        yield from wrong_with_end(code, said, ours)
        if code == 0:
            yield from differences(ours, trained / "run")

    return faults


@pytest.mark.slow
def test_training_killed_at_some_file_operations_gives_the_same_result(trained, tmp_path):
    record = trained / "record"
    assert not hold(tmp_path, every(record)[::CORE], record, faults_of_training(trained))


@pytest.mark.hostile
@pytest.mark.parametrize("part", range(8))
def test_training_killed_at_every_file_operation_gives_the_same_result(trained, tmp_path, part):
    record = trained / "record"
    assert not hold(tmp_path, every(record)[part::8], record, faults_of_training(trained))


# An export into a base directory whose version 1 is being served.

# TensorFlow changes files without Python; these hooks report the moments before it does.
TOLD = """
from tensorflow.python.lib.io import file_io

def tell(name, original):
    def telling(path, *arguments, **options):
        note(name, path)
        return original(path, *arguments, **options)
    setattr(file_io, name, telling)

for name in ("recursive_create_dir_v2", "write_string_to_file", "rename_v2", "copy_v2"):
    tell(name, getattr(file_io, name))
"""
# The export does not measure latency again.
MEASURED = """
import json
from export.artifacts import deployment
facts = json.loads({!r})
deployment.facts = lambda *_: facts
"""


def export(run, base, record, stop=None, measured=None):
    before = TOLD + SHORT_EXPORT + (MEASURED.format(json.dumps(measured)) if measured else "")
    return ended("export.saved_model", [run, base], base, record, stop, before)


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A run, and a base directory with a first exported version, without its README."""

    def make(folder):
        folder.mkdir()
        translator, limits = tiny.make_translator(), dict(list(tiny.SERVED.items())[:2])
        run.save(folder / "run", translator.model, translator.tokenizer, limits)
        code, said = export(folder / "run", folder / "base", folder / "first")
        assert code == 0, said
        for path in (folder / "base").iterdir():
            if not path.name.startswith("1"):
                path.unlink()
        second = shutil.copytree(folder / "base", folder / "second")
        code, said = export(folder / "run", second, folder / "record", measured=measures(folder))
        assert code == 0, said

    return once(tmp_path_factory, "exported-by-force", make)


def measures(exported):
    return json.loads((exported / "base" / "1.report.json").read_bytes())["deployment"]


def answer(version):
    """The translations of a version: as stored and as TensorFlow loads it."""
    served = tf.saved_model.load(str(version)).signatures["serving_default"]
    return served(text=tf.constant(tiny.sentences(3)))["translation"].numpy().tolist()


def wrong_with_versions(base, expected):
    """The faults of a base directory: the first version must be unchanged, each other one
    complete."""
    before, after = hashes(expected), hashes(base)
    if changed := [name for name in before if after.get(name) != before[name]]:
        yield f"changed: {changed}"
    for version in base.iterdir():
        if version.name.isdecimal() and version.name != "1":
            if hashes(version).keys() != hashes(expected / "1").keys():
                yield f"half a version: {sorted(hashes(version))}"
            elif answer(version) != answer(expected / "1"):
                yield f"another version: {answer(version)}"


def faults_of_export(exported):
    expected, measured = exported / "base", measures(exported)

    def faults(folder, place, number):
        base, record = shutil.copytree(expected, folder / "base"), folder / "record"
        words = (exported / "run", base, record)
        yield from wrong_with_stop(*export(*words, (place, number), measured), number)
        yield from wrong_with_versions(base, expected)
        yield from wrong_with_end(*export(*words, measured=measured), base)
        yield from wrong_with_versions(base, expected)
        # If it was killed after publishing, the version exists, perhaps without its report, which
        # is written later; and the next version exists too.
        there = {path.name for path in base.iterdir()}
        wanted = {path.name for path in (exported / "second").iterdir()}
        if "3" in there:
            wanted, there = wanted | {"3", "3.report.json"}, there | {"2.report.json"}
        if there != wanted:
            yield f"in the directory: {sorted(there)}"

    return faults


@pytest.mark.slow
def test_export_killed_at_some_file_operations_succeeds_when_repeated(exported, tmp_path):
    record = exported / "record"
    assert not hold(tmp_path, every(record, 1)[::92], record, faults_of_export(exported))


@pytest.mark.hostile
def test_export_killed_at_every_file_operation_succeeds_when_repeated(exported, tmp_path):
    record = exported / "record"
    assert not hold(tmp_path, every(record, 1), record, faults_of_export(exported))


# A translation of files, one of them compressed.


def translate(model, output, record, *files, stop=None):
    # The progress is recorded after every seven lines.
    before = "from export import translate_files; translate_files.CHUNK = 7"
    return ended("export.translate_files", [model, output, *files], output, record, stop, before)


@pytest.fixture(scope="session")
def translated(short, tmp_path_factory):
    """Files, and their translations without any interruption."""

    def make(folder):
        folder.mkdir()
        texts = [f"{text}\n" for text in tiny.sentences(31, maximum=3)]
        (folder / "a.txt").write_text("".join(texts[:17]))
        (folder / "b.txt.gz").write_bytes(gzip.compress("".join(texts[17:]).encode(), mtime=0))
        files = [folder / "a.txt", folder / "b.txt.gz"]
        code, said = translate(short, folder / "out", folder / "record", *files)
        assert code == 0, said

    return once(tmp_path_factory, "translated", make)


def faults_of_translation(model, translated):
    files = [translated / "a.txt", translated / "b.txt.gz"]

    def faults(folder, place, number):
        words = (model, folder / "out", folder / "record", *files)
        yield from wrong_with_stop(*translate(*words, stop=(place, number)), number)
        yield from wrong_with_end(*translate(*words), folder / "out")
        if hashes(folder / "out") != hashes(translated / "out"):
            yield f"other files: {sorted(hashes(folder / 'out'))}"

    return faults


@pytest.mark.nightly
def test_translation_killed_at_some_file_operations_gives_the_same_result(
    short, translated, tmp_path
):
    record = translated / "record"
    chosen = every(record, 1)[::31]
    assert not hold(tmp_path, chosen, record, faults_of_translation(short, translated))


@pytest.mark.hostile
def test_translation_killed_at_every_file_operation_gives_the_same_result(
    short, translated, tmp_path
):
    record = translated / "record"
    assert not hold(tmp_path, every(record, 1), record, faults_of_translation(short, translated))
