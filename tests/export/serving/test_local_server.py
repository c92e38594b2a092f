"""The command: its output, its exit codes, and one line for each mistake."""

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
from paths import ROOT
from serving import SECONDS, flip_weights, wait_until

from export import local_server


def start(*arguments):
    command = [sys.executable, "-m", "export.local_server", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_command_prints_a_working_curl_line_and_exits_with_0(short):
    process = start(short.parent, "--name", "tiny", "--port", "0", "--rest-port", "0")
    try:
        line = process.stdout.readline()
        assert line.startswith("curl -d "), process.stderr.read()
        done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=SECONDS)
        assert '"predictions"' in done.stdout and '"translation"' in done.stdout, done.stderr
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in error
    begun, loaded, *_ = [line for line in error.splitlines() if "tiny version 1" in line]
    assert begun == "tiny version 1 is being loaded ..."
    assert re.fullmatch(r"tiny version 1 is loaded in \d+\.\d s \(1 warm-up requests\)", loaded)
    assert "gRPC at 127.0.0.1:" in error


@pytest.mark.slow
def test_ctrl_c_during_loading_exits_with_0_and_restores_the_cursor(short):
    """The worker ends too, and the terminal is restored."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "export.local_server", short.parent, "--port", "0"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": ""}
    process = subprocess.Popen(
        [*map(str, command), "--rest-port", "0"],
        cwd=ROOT, stdout=theirs, stderr=theirs, env=environment,
    )  # fmt: skip
    os.close(theirs)
    said, children = b"", []
    try:
        while b"is being loaded" not in said:
            said += os.read(ours, 4096)
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        children = wait_until(lambda: listed.read_text().split())
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # at its end, the other side is closed
            while piece := os.read(ours, 4096):
                said += piece
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        os.close(ours)
    assert b"Traceback" not in said and b"curl" not in said
    assert said.rfind(b"\x1b[?25h") > said.rfind(b"\x1b[?25l") >= 0
    # The kernel may need a moment.
    assert wait_until(lambda: not [child for child in children if Path("/proc", child).exists()])


@pytest.mark.slow
def test_directory_without_a_loadable_version_exits_with_1(short, tmp_path, capfd):
    base = tmp_path / "tiny"
    shutil.copytree(short, base / "1")
    flip_weights(base / "1")
    assert local_server.main([str(base), "--port", "0", "--rest-port", "0"]) == 1
    output, error = capfd.readouterr()
    assert not output
    *_, last = error.splitlines()
    assert last.startswith("python -m export.local_server: error: Some models did not become")
    assert "version 1: DATA_LOSS" in last and "Traceback" not in error
    (tmp_path / "empty").mkdir()
    assert local_server.main([str(tmp_path / "empty"), "--port", "0", "--rest-port", "0"]) == 1
    assert capfd.readouterr().err.splitlines()[-1].endswith("{empty (no version)}")


@pytest.mark.parametrize("option", ["--port", "--rest-port"])
def test_taken_port_gives_one_line_error(option, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ports = {"--port": "0", "--rest-port": "0", option: port}
        arguments = [part for pair in ports.items() for part in pair]
        assert local_server.main([str(tmp_path / "empty"), *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"python -m export.local_server: error: {option} must be free, got {port}"
    )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ([], "give either a directory or --config"),
        (["x", "--config", "y"], "give either a directory or --config"),
        (["x", "--port", "65536"], "--port must be in [0, 65535], got 65536"),
        (["x", "--rest-port", "-1"], "--rest-port must be in [0, 65535], got -1"),
        (["x", "--rest-timeout", "0"], "--rest-timeout must be positive, got 0"),
        (["x", "--intra-op-threads", "0"], "--intra-op-threads must be at least 1, got 0"),
        (["none"], "a base_path that is a folder"),
        (["loop"], "a base_path that is a folder"),
        (["--config", "none"], "the models' configuration cannot be read"),
        (["x", "--batching", "none"], "`tfformer export RUN DIRECTORY --batching`"),
        (["x", "--batching", "x"], "--batching` writes into DIRECTORY, got x: Is a directory"),
        (["x", "--batching", "wrong"], "batching parameters do not parse"),
    ],
)
def test_wrong_usage_gives_one_line_error(arguments, match, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("x").mkdir()
    Path("loop").symlink_to("loop")
    Path("wrong").write_text("most: 1")
    try:
        code = local_server.main(arguments)
    except SystemExit as error:
        code = error.code
    [line] = capsys.readouterr().err.splitlines()
    assert code == 2 and match in line


@pytest.mark.slow
@pytest.mark.parametrize("second", [False, True])
def test_shutdown_drains_requests_and_a_second_signal_ends_it_at_once(short, second):
    """A request takes seconds, and 16 of them wait for two processors."""
    script = "from export import local_server; local_server.DRAIN = 2; local_server.main()"
    command = [sys.executable, "-c", script, short.parent, "--name", "tiny", "--port", "0"]
    process = subprocess.Popen(
        [*map(str, command), "--rest-port", "0"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    document = ". ".join([" ".join(text.capitalize() for text in tiny.sentences(40))] * 20)
    body = {"signature_name": "translate_document", "inputs": {"text": [document] * 20}}
    body = json.dumps(body).encode()
    try:
        url = shlex.split(process.stdout.readline())[-1]
        asking = [socket.create_connection(("127.0.0.1", int(re.findall(r":(\d+)/", url)[0])))
                  for _ in range(16)]  # fmt: skip
        head = b"POST /v1/models/tiny:predict HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        for one in asking:
            one.sendall(head + body)
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        [worker] = listed.read_text().split()
        time.sleep(1)  # time to read them
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        if second:
            wait_until(lambda: "shutting down" in process.stderr.readline())
            process.send_signal(signal.SIGINT)
        code, seconds = process.wait(SECONDS), time.monotonic() - start
        assert (code, seconds < 2) == ((-signal.SIGINT, True) if second else (0, False))
        assert seconds < 8
        wait_until(lambda: not Path("/proc", worker).exists())
        for one in asking:
            one.close()
    finally:
        process.kill()


def test_a_signal_at_any_moment_ends_the_wait():
    """Also while the main thread holds a lock. Here it polls all the time, so it often does."""
    program = """
import signal
from export.local_server import Signals

Signals.LOOK, Signals.NUMBERS = 1e-6, [signal.SIGALRM]
for n in range(200):
    with Signals() as signals:
        signals.loading = False
        signal.setitimer(signal.ITIMER_REAL, 0.001 + n * 1e-6)
        signals.wait()
"""
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, cwd=ROOT, timeout=SECONDS).returncode == 0
