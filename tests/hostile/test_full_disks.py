"""A disk that becomes full and streams that cannot be written to, for each command that writes.

One line reports it, and no file is half written. With enough space, the same command then succeeds.
"""

import contextlib
import hashlib
import http.server
import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import processes
import pytest
import tiny
from paths import ROOT
from shared import once
from tmpfs import mounted
from writers import ELSEWHERE, RECIPE, TRAIN, WRITERS, make_given

import tfformer
from tfformer.files import unpack

SECONDS = 300
MAX_SAID = 1 << 20  # bytes
# These files may differ: TensorBoard's grow while a command runs, and locks are separate.
APART = ("tensorboard", ".lock")


@pytest.fixture(scope="session")
def given(short, tmp_path_factory):
    """The files to read: texts, a run after one of two epochs, the same run finished, a
    SavedModel."""

    def make(folder):
        given = make_given(folder, short)
        for run, epochs in ((given.half, 1), (given.run, 2)):
            words = [RECIPE, "--run", run, f"--epochs={epochs}", *TRAIN]
            code, said = ended("training.train", words)
            assert code == 0, said
        translator, limits = tiny.make_translator(), dict(list(tiny.SERVED.items())[:2])
        tfformer.save(given.tiny, translator.model, translator.tokenizer, limits)

    class Home(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=given.home)

        def log_message(self, *_):
            """Keeps request logs out of the tests' output."""

    given = make_given(once(tmp_path_factory, "given", make), short, write=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Home) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        given.url = f"http://127.0.0.1:{server.server_port}"
        yield given
        server.shutdown()


def ended(module, words, largest_file=None, before=""):
    """(exit code, output) of a command. The output is not limited by `largest_file`."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(reading, "rb") as said, open(writing, "wb"):
        process = processes.begin(
            module, words, {"no_proxy": "127.0.0.1"}, writing, largest_file, before
        )
        try:
            code = process.wait(SECONDS)
        finally:
            process.kill()
        return code, (said.read(MAX_SAID) or b"").decode(errors="replace")


def run(name, given, folder, largest_file=None, before=""):
    writer, text = WRITERS[name], given.source.with_name(f"{name}.stdin")
    text.write_text(writer.reads)
    stdin = f"import os, sys; os.dup2(os.open({str(text)!r}, os.O_RDONLY), 0)\n"
    stdin += "sys.stdin = open(0, closefd=False)\n"
    words = writer.words(given, folder)
    before = f"{before}\n{stdin}{writer.before}"
    return ended(name.split()[0], words, largest_file, before)


def hashes(folder):
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if not any(part in path.parts for part in APART)
    }


def is_whole(path, expected):
    """Whether a file is complete: by its content, or else by the expected size."""
    content = path.read_bytes()
    with contextlib.suppress(ValueError):
        match path.suffix:
            case ".json":
                return bool(json.loads(content))
            case ".npz":
                return bool(unpack(content))
            case ".npy":
                return len(np.load(path)) > 0
            case ".png":
                return content.startswith(b"\x89PNG") and b"IEND" in content[-12:]
            case ".csv" | ".md" | ".tsv":
                return content.endswith(b"\n")
            case _ if path.name == "fingerprint.pb":  # its numbers have any length
                return bool(content)
            case _:
                return expected.exists() and len(content) == expected.stat().st_size
    return False


def wrong_with_files(folder, before, expected):
    """The faults in the files of a folder: damaged, half written, or left over."""
    for name, digest in hashes(folder).items():
        path = folder / name
        if path.name.endswith((".part", ".tmp")) or "partial" in name:
            # An incomplete translation is kept, so that the command can continue it.
            if not name.startswith("out/") or not name.endswith(".partial"):
                yield f"left over: {name}"
        elif digest != before.get(name) and not is_whole(path, expected / name):
            yield f"half a file: {name}"
    if gone := before.keys() - hashes(folder).keys():
        yield f"gone: {sorted(gone)}"


def wrong_with_end(code, said):
    """The faults in how a command reports that it could not write."""
    lines = [line for line in said.splitlines() if ": error: " in line]
    if code != 1:
        yield f"exit code {code}: {said[-500:]}"
    if len(lines) != 1 or "Traceback" in said or "Exception ignored" in said:
        yield f"said: {said[-2000:]}"


def names(folder):
    """The names of the files, except those named after their content."""
    return {name for name in hashes(folder) if not Path(name).name.startswith("weights-")}


def wrong_with_next(code, said, folder, expected):
    """The faults of the second attempt, when there is space again."""
    if code != 0:
        yield f"with room again, exit code {code}: {said[-1000:]}"
    elif other := names(folder) ^ names(expected):
        yield f"with room again, other files: {sorted(other)}"


@pytest.fixture(scope="session")
def whole(given, tmp_path_factory):
    """A function from a command's name to the folder that it leaves without any fault."""

    def get(name):
        def make(folder):
            WRITERS[name].put(given, folder)
            code, said = run(name, given, folder)
            assert code == 0, said

        return once(tmp_path_factory, f"whole {name}", make)

    return get


def sizes(minimum, expected):
    """Sizes, each four times the one before, up to enough for all files together."""
    total = sum(path.stat().st_size for path in expected.rglob("*") if path.is_file())
    size = minimum
    while size < 4 * total + minimum:
        yield size
        size *= 4


def hold(name, tried, attempt):
    """Tries what `attempt` tests, and lists all faults."""
    found, failed = [], 0
    for one in tried:
        wrong = list(attempt(one))
        failed += bool(wrong)
        found += [f"{name}, {one}: {fault}" for fault in wrong]
    print(f"{name}: {len(tried)} tried, {len(tried) - failed} held", *found, sep="\n")
    return found


def faults_of_limit(name, given, expected, folder):
    """A function of the maximum size of a file, in bytes."""

    def faults(size):
        WRITERS[name].put(given, folder)
        before = hashes(folder)
        code, said = run(name, given, folder, largest_file=size)
        if code != 0:
            yield from wrong_with_end(code, said)
            yield from wrong_with_files(folder, before, expected)
            code, said = run(name, given, folder)
        yield from wrong_with_next(code, said, folder, expected)
        shutil.rmtree(folder)

    return faults


def faults_of_disk(name, given, expected, disk):
    """A function of the free space, in bytes."""

    def faults(size):
        folder, seen = disk.path / "work", disk.seen / "work"
        WRITERS[name].put(given, seen)
        before = hashes(seen)
        with disk.room(size):
            code, said = run(name, given, folder, before=disk.join)
            if code != 0:
                yield from wrong_with_end(code, said)
                yield from wrong_with_files(seen, before, expected)
        if code != 0:
            code, said = run(name, given, folder, before=disk.join)
        yield from wrong_with_next(code, said, seen, expected)
        shutil.rmtree(seen)

    return faults


FILES = [name for name, writer in WRITERS.items() if writer.files]


def test_every_command_is_listed():
    commands = {
        f"{package}.{path.stem}"
        for package in ("training", "export")
        for path in (ROOT / package).glob("[!_]*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    assert commands == {name.split()[0] for name in WRITERS} | ELSEWHERE.keys()


@pytest.mark.slow
def test_shortlist_command_leaves_no_half_file_at_a_size_limit(given, whole, tmp_path):
    name = "training.shortlist"
    assert not hold(name, [64], faults_of_limit(name, given, whole(name), tmp_path / "work"))


@pytest.mark.hostile
@pytest.mark.parametrize("name", FILES)
def test_every_command_leaves_no_half_file_at_a_size_limit(given, whole, tmp_path, name):
    expected = whole(name)
    tried = [0, *sizes(16, expected)]
    assert not hold(name, tried, faults_of_limit(name, given, expected, tmp_path / "work"))


@pytest.mark.hostile
@pytest.mark.parametrize("name", FILES)
def test_every_command_leaves_no_half_file_on_a_full_disk(given, whole, tmp_path, name):
    expected = whole(name)
    with mounted(tmp_path, 2**26) as disk:
        if disk is None:
            pytest.skip("nothing can be mounted here")
        tried = [0, *sizes(4096, expected)]
        assert not hold(name, tried, faults_of_disk(name, given, expected, disk))


FULL = "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
# Standard output and standard error: {name: (a program that breaks it, whether it is the output)}.
STREAMS = {
    "a full output": (f"{FULL}; sys.stdout = open(1, 'w', closefd=False)", True),
    "a full output without a buffer": (f"{FULL}; sys.stdout.reconfigure(write_through=True)", True),
    "a closed output": ("import os, sys; os.close(1); sys.stdout = None", True),
    "full errors": ("import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 2)", False),
    "closed errors": ("import os, sys; os.close(2); sys.stderr = None", False),
}


def faults_of_streams(name, given, expected, folder):
    """A function of what happens to a stream."""

    def faults(stream):
        program, is_output = STREAMS[stream]
        WRITERS[name].put(given, folder)
        before = hashes(folder)
        code, said = run(name, given, folder, before=program)
        if is_output and WRITERS[name].prints:
            yield from wrong_with_end(code, said)
        elif is_output and (code != 0 or "error: " in said or "Traceback" in said):
            yield f"exit code {code}: {said[-500:]}"
        elif code not in (0, 1):  # the reason cannot be printed
            yield f"exit code {code}: {said[-500:]}"
        yield from wrong_with_files(folder, before, expected)
        code, said = run(name, given, folder) if code else (code, said)
        yield from wrong_with_next(code, said, folder, expected)
        shutil.rmtree(folder)

    return faults


@pytest.mark.slow
def test_dates_command_leaves_no_half_file_with_unwritable_streams(given, whole, tmp_path):
    name = "training.dates"
    assert not hold(name, STREAMS, faults_of_streams(name, given, whole(name), tmp_path / "work"))


@pytest.mark.hostile
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("name", WRITERS)
def test_every_command_leaves_no_half_file_with_unwritable_streams(given, whole, tmp_path, name):
    assert not hold(name, STREAMS, faults_of_streams(name, given, whole(name), tmp_path / "work"))
