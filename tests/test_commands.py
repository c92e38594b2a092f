"""Rules for all commands: they are listed, and they import TensorFlow without its log lines.

The package `training` stands for `export` too; test_numbers.py shows that they behave alike.
"""

import importlib
import os
import subprocess
import sys

import pytest
from paths import ROOT

from tfformer.terminal import listing
from tfformer.terminal.command import _Quietly


@pytest.mark.parametrize("package", ["training", "export"])
def test_each_command_is_listed_with_a_description(package, capsys):
    main = importlib.import_module(f"{package}.__main__").main
    assert main([]) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[2:]]
    found = [path for path in (ROOT / package).glob("*.py") if not path.name.startswith("_")]
    found = [path.stem for path in found if '__name__ == "__main__"' in path.read_text()]
    assert [name for name, _ in rows] == [f"tfformer.{package}.{name}" for name in sorted(found)]
    assert all(len(text.split()) > 1 and "`python" not in text for _, text in rows)
    with pytest.raises(SystemExit) as ended:
        main(["no-such-command"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_tensorflow_log_lines_are_hidden_and_others_passed_on(capfd):
    [finder] = [f for f in sys.meta_path if type(f).__name__ == "_Quietly"]
    assert type(finder).__module__.endswith(".command")
    said = [
        b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n",
        b"I0000 00:00:1795458683.422050   15030 port.cc:153] oneDNN custom operations are on.\n",
        b"2026-11-23 18:00:00.000000: I tensorflow/core/util/port.cc:153] oneDNN\n",
        b"To enable the following instructions: AVX2 FMA, in other operations, rebuild\n",
        b"MemoryError: this is none\n",
        b"INFO: nor is this\n",
    ]

    def importing():
        for line in said:
            os.write(2, line)

    _Quietly().held(importing)
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err.encode() == b"".join([*said[-2:], b"afterwards\n"])


def test_output_of_a_failing_import_is_kept(capfd):
    def failing():
        os.write(2, b"why\n")
        raise ImportError("it is damaged")

    with pytest.raises(ImportError):
        _Quietly().held(failing)
    assert capfd.readouterr().err == "why\n"


def test_abort_message_is_kept_and_closed_stderr_stops_nothing():
    program = """
import os, sys
from tfformer.terminal.command import _Quietly
def aborting():
    os.write(2, b"the processor has no AVX\\n")
    os.abort()
_Quietly().held(aborting)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True)
    assert done.returncode < 0 and b"the processor has no AVX" in done.stderr
    held = "_Quietly().held(lambda: print('run'))"
    program = f"from tfformer.terminal.command import _Quietly; {held}"
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"run\n")


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "stopped by SIGTERM")],
)
def test_signal_ends_a_command_even_inside_a_gc_callback(name, code, line):
    program = f"""
import gc, os, signal, sys, time
from tfformer.terminal.command import Parser
def callback(phase, info):
    if phase == "start":
        os.kill(os.getpid(), signal.{name})
signal.signal(signal.SIGINT, signal.default_int_handler)  # who begins this may ignore it
def work(options):
    gc.callbacks.append(callback)
    gc.collect()
    gc.callbacks.clear()
    time.sleep(120)
sys.exit(Parser("a.command", "").run(work))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"python -m a.command: error: {line}\n"


CLOSED = "error: standard output must be open"
FULL = "standard output: [Errno 28] No space left on device"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_only_an_unprintable_result_is_an_error():
    """Each case has a process. The command writes the buffer itself, not Python at its exit."""
    program = """
import sys
from tfformer.terminal.command import Parser
parser = Parser("a.command", "", prints={})
def work(options):
    with parser.remarks():
        print("there is a file")
    return 0
sys.exit(parser.run(work if not parser.prints else lambda options: print("found") or 0))
"""
    full = "error: [Errno 28] No space left on device"
    for prints, redirect, code, said in (
        (True, ">/dev/full", 1, full), (True, ">&-", 1, CLOSED),
        (False, ">/dev/full", 0, f"warning: {FULL}"), (False, ">&-", 0, None),
    ):  # fmt: skip
        command = [sys.executable, "-c", program.format(prints)]
        command = ["sh", "-c", f'exec "$@" {redirect}', "sh", *command]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        expected = f"python -m a.command: {said}\n" if said else ""
        assert (done.returncode, done.stderr) == (code, expected)


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, "0"])
def test_tensorflow_import_is_silent_by_default(level):
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    if level:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    imports = "tensorflow, tensorflow_text, keras"
    done = subprocess.run(
        [sys.executable, "-c", f"import tfformer.terminal.command, {imports}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout == b""
    assert (done.stderr == b"") == (level is None)


@pytest.mark.parametrize("package", ["training", "export"])
def test_help_and_wrong_usage_import_no_tensorflow(package):
    """One process prints all help texts; neither Keras nor TensorFlow is imported."""
    names = [f"{package}.{name}" for name, _ in listing.commands(ROOT / package)]
    program = f"""
import contextlib, importlib, sys
sys.modules.update(tensorflow=None, keras=None)
for name in {names!r}:
    for arguments in (["--help"], ["--no-such-option"]):
        with contextlib.suppress(SystemExit):
            importlib.import_module(name).main(arguments)
if "training.train" in {names!r}:
    main = importlib.import_module("training.train").main
    assert main(["--val-target", "file", "--run", "r"]) == main(["--run", "r"]) == 2
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {name for name in names if f"usage: python -m {name} " in done.stdout} == set(names)
    wrong = [line for line in done.stderr.splitlines() if ": error: " in line]
    assert {line.split(": ")[0] for line in wrong} == {f"python -m {name}" for name in names}
