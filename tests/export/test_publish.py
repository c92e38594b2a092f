"""Where a version is written before it is published, and the leftovers of killed exports."""

import os
import signal
import subprocess
import sys

import pytest
from paths import ROOT

from export.artifacts.publish import scratch, sweep


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_scratch_folder_is_removed_even_after_an_error(tmp_path):
    with scratch(tmp_path) as folder:
        (folder / "model").mkdir()
        assert names(tmp_path) == [folder.name]
    assert names(tmp_path) == []
    with pytest.raises(ZeroDivisionError), scratch(tmp_path) as folder:
        (folder / "report.json").touch()
        1 / 0  # noqa: B018
    assert names(tmp_path) == []


LEAVES = """
import os, signal, sys
from pathlib import Path
from export.artifacts.publish import scratch
with scratch(sys.argv[1]) as folder:
    (folder / "model").mkdir()
    (folder / "xla").mkdir()
    (folder / ".report.json.0123.partial").touch()
    print(folder.name, flush=True)
    sys.stdin.read()
"""


def test_only_scratch_folders_of_killed_exports_are_swept(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVES, str(tmp_path)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    left = process.stdout.readline().strip()
    with scratch(tmp_path) as folder:
        assert names(tmp_path) == sorted([left, folder.name])
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert names(tmp_path) == [left]
    with scratch(tmp_path) as folder:
        assert names(tmp_path) == [folder.name]


def test_foreign_files_are_not_swept(tmp_path):
    for name in ("partial-1", "partial-of_mine", "partial-abcdefgh", "1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").touch()
    (tmp_path / "partial-01234567").symlink_to(tmp_path / "1")
    (tmp_path / "partial-12345678").touch()
    before = names(tmp_path)
    sweep(tmp_path)
    assert names(tmp_path) == before


def test_without_file_locks_nothing_is_swept(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError("no locks")

    (tmp_path / "partial-01234567").mkdir()
    monkeypatch.setattr("fcntl.flock", unsupported)
    with scratch(tmp_path) as folder:
        assert len(names(tmp_path)) == 2
    assert names(tmp_path) == ["partial-01234567"] and not folder.exists()
