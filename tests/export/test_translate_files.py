"""Files of any size are translated line by line, in constant memory, and can be continued."""

import gzip
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
from paths import ROOT, SUPPORT

from benchmarks.machine import resident_mib
from export import translate_files
from export.remote.lines import MAX_BYTES, read_lines
from export.serving.bulk import BulkTranslator
from export.translate_files import ProgressError, translate_file
from export.verification.graph import UsageError

IDENTITY = {"model": "x"}


def upper(lines):
    return [line.upper() for line in lines]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.txt"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(5 * translate_files.CHUNK + 7)))
    return path


@pytest.fixture
def target(tmp_path):
    return tmp_path / "target.txt"


def left_over(target):
    return sorted(p.name for p in target.parent.iterdir() if p.name.startswith((".", target.name)))


# Lines.


def test_lines_are_split_only_at_newlines(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes("one\r\ntwo\u2028and\x0bhalf\n\nlast\rof\xff".encode("latin-1", "replace"))
    with path.open("rb") as file:
        assert list(read_lines(file)) == ["one", "two?and\x0bhalf", "", "last\rof�"]


def test_too_long_line_is_truncated_and_the_next_is_complete(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"a" * (3 * MAX_BYTES + 5) + b"\nb\n" + b"c" * MAX_BYTES + b"\nd")
    with path.open("rb") as file:
        found = list(read_lines(file))
    assert [len(line) for line in found] == [MAX_BYTES, 1, MAX_BYTES, 1]
    assert found[1] == "b" and found[3] == "d"


# One file.


def test_file_is_translated_line_by_line_without_leftover_files(source, target):
    count = translate_file(source, target, upper, IDENTITY)
    assert target.read_bytes() == source.read_bytes().upper()
    assert count == 5 * translate_files.CHUNK + 7
    assert left_over(target) == ["target.txt"]


def test_last_line_without_newline_and_multiline_output_give_one_line_each(tmp_path, target):
    source = tmp_path / "in"
    source.write_bytes(b"a\r\n\nb")
    translate_file(source, target, lambda lines: [f"{n}\nx" for n in lines], IDENTITY)
    assert target.read_bytes() == b"a x\n x\nb x\n"


def test_gzip_is_detected_by_content(source, tmp_path, target):
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    translate_file(packed, target, upper, IDENTITY)
    assert target.read_bytes() == source.read_bytes().upper()


@pytest.mark.parametrize(("packed", "chunks"), [(False, 1), (False, 5), (True, 3)])
def test_chunks_finished_before_a_failure_are_not_translated_again(
    source, target, tmp_path, packed, chunks
):
    expected = source.read_bytes().upper()
    if packed:
        source.write_bytes(gzip.compress(source.read_bytes()))
    asked = []

    def fail(lines):
        if len(asked) == chunks:
            raise OSError("the power is gone")
        asked.append(lines)
        return upper(lines)

    with pytest.raises(OSError, match="power"):
        translate_file(source, target, fail, IDENTITY)
    assert not target.exists()
    with (tmp_path / "target.txt.partial").open("ab") as partial:
        partial.write(b"half a chunk that no record kno")

    def count(lines):
        asked.append(lines)
        return upper(lines)

    translate_file(source, target, count, IDENTITY)
    assert target.read_bytes() == expected
    assert [len(lines) for lines in asked] == [translate_files.CHUNK] * 5 + [7]


@pytest.fixture
def begun(source, target):
    """A translation that failed after its first chunk: its partial file and its record."""
    calls = []

    def fail(lines):
        calls.append(lines)
        if len(calls) > 1:
            raise OSError
        return upper(lines)

    with pytest.raises(OSError):
        translate_file(source, target, fail, IDENTITY)
    return target.with_name("target.txt.partial"), target.with_name("target.txt.progress.json")


@pytest.mark.parametrize("change", ["model", "source", "another source", "damage"])
def test_resuming_with_another_model_or_source_is_refused(source, target, begun, change):
    partial, record = begun
    identity = {"model": "other"} if change == "model" else IDENTITY
    if change == "source":
        source.write_bytes(source.read_bytes() + b"more\n")
    if change == "another source":  # of the same size and time
        times = source.stat().st_atime_ns, source.stat().st_mtime_ns
        source.write_bytes(source.read_bytes().replace(b"line", b"word"))
        os.utime(source, ns=times)
    if change == "damage":
        record.write_bytes(record.read_bytes()[:20])
    before = partial.read_bytes()
    with pytest.raises(ProgressError, match="to start again, remove it and target.txt.partial"):
        translate_file(source, target, upper, identity)
    assert partial.read_bytes() == before
    record.unlink()
    partial.unlink()
    translate_file(source, target, upper, identity)
    assert target.read_bytes() == source.read_bytes().upper()


def test_touched_source_counts_as_unchanged(source, target, begun):
    os.utime(source)
    translate_file(source, target, upper, IDENTITY)
    assert target.read_bytes() == source.read_bytes().upper()


@pytest.mark.parametrize(
    ("name", "value"),
    [("lines", "-5"), ("written", "1e400"), ("read", "1.5"), ("checksum", "null")],
)
def test_damaged_number_in_the_record_is_refused(source, target, begun, name, value):
    partial, record = begun
    text = record.read_text()
    record.write_text(re.sub(rf'"{name}": [^,\n]+', f'"{name}": {value}', text))
    assert record.read_text() != text
    before = partial.read_bytes()
    with pytest.raises(ProgressError, match="progress.json is damaged, or from another"):
        translate_file(source, target, upper, IDENTITY)
    assert partial.read_bytes() == before


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["target.txt.partial", "target.txt.progress.json"])
def test_a_link_in_place_of_unfinished_work_is_not_followed(source, target, tmp_path, link, name):
    other = tmp_path / "other"
    other.write_bytes(b"precious\n")
    link(other, tmp_path / name)
    with pytest.raises(OSError, match=f"{name} must be a file of its own"):
        translate_file(source, target, upper, IDENTITY)
    assert other.read_bytes() == b"precious\n"


def test_foreign_partial_file_is_kept(source, target, tmp_path):
    (tmp_path / "target.txt.partial").write_bytes(b"notes\n")
    with pytest.raises(ProgressError, match="is not from this command"):
        translate_file(source, target, upper, IDENTITY)
    assert (tmp_path / "target.txt.partial").read_bytes() == b"notes\n"


def test_foreign_record_file_is_kept(source, target):
    translate_file(source, target, upper, IDENTITY)
    mine = target.with_name("target.txt.progress.json")
    for text in ("my notes", '{"lines": 3}', "[]"):
        mine.write_text(text)
        translate_files._forget(target)
        assert mine.read_text() == text


def test_two_processes_cannot_write_one_file(source, target):
    def again(lines):
        with pytest.raises(ProgressError, match="another process"):
            translate_file(source, target, upper, IDENTITY)
        return upper(lines)

    translate_file(source, target, again, IDENTITY)
    assert target.read_bytes() == source.read_bytes().upper()


def test_memory_does_not_grow_with_the_file(tmp_path, target):
    source = tmp_path / "in"
    with source.open("wb") as file:
        for _ in range(20):
            file.write(b"some words of a longer line\n" * 20_000)
    sizes = []

    def measure(lines):
        sizes.append(resident_mib(os.getpid()))
        return lines

    translate_file(source, target, measure, IDENTITY)
    assert len(sizes) > 180
    assert max(sizes[10:]) - sizes[10] < 4  # MiB; the file has 11


@pytest.mark.slow
def test_killed_translation_resumes_with_the_same_result(source, target):
    program = """
import sys, time
from pathlib import Path
from export.translate_files import translate_file

def upper(lines):
    time.sleep(0.02)
    return [line.upper() for line in lines]

translate_file(Path(sys.argv[1]), Path(sys.argv[2]), upper, {"model": "x"})
"""
    source.write_bytes(source.read_bytes() * 2)
    partial, rng = target.with_name("target.txt.partial"), random.Random(0)
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", program, source, target], cwd=ROOT)
        size = partial.stat().st_size if partial.exists() else 0
        while not partial.exists() or partial.stat().st_size <= size:
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.03))
        process.kill()
        process.wait()
    assert not target.exists()
    translate_file(source, target, upper, IDENTITY)
    assert target.read_bytes() == source.read_bytes().upper()


# With a model.


@pytest.mark.slow
def test_bulk_translations_equal_the_translator(short, translator_served, capfd):
    texts = [*tiny.sentences(97), "", "  ", "Grüße 🎉", "a" * 3000]
    with BulkTranslator(short, batch_size=7) as model:
        found = model.translate(texts)
        assert model.translate([]) == []
    assert capfd.readouterr().err == ""  # no log lines of TensorFlow
    assert found == translator_served.translate(texts)
    with BulkTranslator(short, document=True) as model:
        assert model.translate(["a house. The lake"]) == [
            translator_served.functions["translate_document"](["a house. The lake"])["translation"]
            .numpy()[0]
            .decode()
        ]


def test_missing_model_folder_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="must exist"):
        BulkTranslator(tmp_path / "none")


@pytest.mark.slow
def test_command_translates_files_by_shard_and_keeps_existing_output(
    short, translator_served, tmp_path, capsys
):
    texts = tiny.sentences(53)
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts))
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(texts[0].encode()))
    files = [tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "c.txt.gz"]
    output = tmp_path / "out"
    assert translate_files.main([*map(str, [short, output, *files]), "--shard", "2/2"]) == 0
    capsys.readouterr()
    assert sorted(path.name for path in output.iterdir()) == ["b.txt"]
    (output / "b.txt").write_text("mine")
    assert translate_files.main([*map(str, [short, output, *files])]) == 0
    assert "1 of 3 files exist already" in capsys.readouterr().err
    assert sorted(path.name for path in output.iterdir()) == ["a.txt", "b.txt", "c.txt"]
    translations = translator_served.translate(texts)
    assert (output / "a.txt").read_text() == "".join(f"{line}\n" for line in translations)
    assert (output / "b.txt").read_text() == "mine"
    assert (output / "c.txt").read_text() == f"{translations[0]}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model", "out", "in.txt", "--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["model", "out", "in.txt", "--shard", "3/2"], "--shard must be I/N"),
        (["model", "out", "none.txt"], "FILE must be a file, got none.txt"),
        (["model", "out", "in.txt", "in.txt"], "files must have different names"),
        (["model", ".", "in.txt"], "OUTPUT must not be the folder of FILE"),
        (["model", "out", "in.txt", "in.txt.partial"], "FILE must have a name that does not end"),
        (["model", "out", "in.txt.partial.gz"], "FILE must have a name that does not end"),
        (["model", "out", "in.txt.progress.json"], "FILE must have a name that does not end"),
        (["model", "out", ".gz"], "FILE must have a name that does not end"),
        (["model", "out", "folder"], "FILE must be a file"),
        (["model", "taken", "in.txt"], "OUTPUT/in.txt must be a file or missing"),
        (["model", "out", "in.txt"], "directory must exist, got 'model'"),
    ],
)
def test_a_mistake_gives_one_line_error(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("a\n")
    Path("taken/in.txt").mkdir(parents=True)
    try:
        code = translate_files.main(arguments)
    except SystemExit as error:
        code = error.code
    assert code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1 and message in lines[0]
    assert Path("in.txt").read_text() == "a\n"


@pytest.mark.slow
def test_a_pipeline_of_apache_beam_translates_the_same(tmp_path):
    """In a separate environment: Beam needs an older protobuf than SentencePiece's module."""
    overlay, constraints = tmp_path / "overlay", tmp_path / "constraints.txt"
    pinned = (ROOT / "requirements.lock").read_text().splitlines()
    free = ("protobuf", "python-dateutil", "pillow", "#")
    constraints.write_text("\n".join(line for line in pinned if not line.startswith(free)))
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", overlay]
    install += ["--no-compile", "-c", constraints, "apache-beam>=2.70"]
    done = subprocess.run([*map(str, install)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"apache-beam cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    paths = os.pathsep.join([str(overlay), str(ROOT), str(SUPPORT)])
    child = subprocess.run(
        [sys.executable, SUPPORT / "beam_pipeline.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr
    assert "the same" in child.stdout
