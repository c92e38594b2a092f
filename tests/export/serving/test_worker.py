"""The process of a loaded version: what it writes to standard error, and when it dies."""

import multiprocessing
import subprocess
import sys
import types

import pytest
from paths import ROOT

from export.capi.job import serve_calls
from export.capi.library import ServingError
from export.serving import worker
from export.serving.worker import Worker

REMARKS = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795466990.042186   10607 port.cc:153] oneDNN custom operations are on.",
)
LAST_WORDS = "F0000 00:00:1795466990.042457   10607 tensor.cc:5] Check failed: none"


@pytest.fixture
def dying(tmp_path, monkeypatch):
    """An interpreter that says two remarks and why it dies, with a remark after that."""
    program = tmp_path / "python"
    said = "\n".join([*REMARKS, LAST_WORDS, REMARKS[1], ""])
    program.write_text(f"#!/bin/sh\nprintf '%s' '{said}' >&2\nkill -ABRT $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_crash_reports_its_reason_without_other_log_lines(dying, tmp_path, capfd):
    with pytest.raises(ServingError, match="was killed by SIGABRT"):
        Worker(tmp_path)
    assert capfd.readouterr().err == f"{LAST_WORDS}\n"
    with pytest.raises(ServingError, match="SIGABRT: F0000 .* Check failed: none"):
        serve_calls(tmp_path, [])
    assert capfd.readouterr().err == ""


def test_min_log_level_0_shows_all_log_lines(dying, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    with pytest.raises(ServingError, match="SIGABRT"):
        Worker(tmp_path)
    assert capfd.readouterr().err.splitlines() == [*REMARKS, LAST_WORDS, REMARKS[1]]


def test_worker_exits_silently_when_its_pipe_is_closed():
    """Whoever started it was interrupted."""
    ours, theirs = multiprocessing.Pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "export.serving.worker", str(theirs.fileno())],
        pass_fds=[theirs.fileno()], cwd=ROOT, stderr=subprocess.PIPE,
    )  # fmt: skip
    theirs.close()
    ours.close()
    _, said = process.communicate()
    assert (process.returncode, said) == (0, b"")


@pytest.mark.parametrize(
    ("status", "peak"),
    [
        ("VmPeak:\t9 kB\nVmHWM:\t    7 kB\nVmRSS:\t    5 kB\n", 7 * 1024),
        ("Name:\tpython\nVmRSS:\t    5 kB\n", 5 * 1024),
        ("Name:\tpython\n", None),
        (None, None),
    ],
)
def test_peak_bytes_are_read_from_proc_status(status, peak, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "PROC", tmp_path)
    process = object.__new__(Worker)
    process._process = types.SimpleNamespace(pid=7)
    (tmp_path / "7").mkdir()
    if status is not None:
        (tmp_path / "7" / "status").write_text(status)
    assert process.peak_bytes == peak
