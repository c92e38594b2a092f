"""`tfformer COMMAND`: each command by its name, from a shell and from Python."""

import importlib
import logging
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from paths import ROOT

import tfformer
from tfformer.__main__ import COMMANDS, MODULES, main
from tfformer.terminal import command, listing
from tfformer.terminal.extras import EXTRAS, missing


@pytest.fixture(autouse=True)
def own_name(monkeypatch):
    """`main` sets the program's name for the rest of the process."""
    monkeypatch.setattr(command, "called_as", None)


def test_each_command_of_the_folders_has_one_name():
    found = [f"{top}.{name}" for top in ("training", "export")
             for name, _ in listing.commands(ROOT / top)]  # fmt: skip
    assert sorted(MODULES.values()) == sorted(found)
    assert EXTRAS.keys() <= MODULES.keys()


def test_help_lists_every_command_with_its_purpose(capsys):
    assert main([]) == main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for group in COMMANDS.values():
        for name, (_, purpose) in group.items():
            assert sum(line.split(maxsplit=1) == [name, purpose] for line in lines) == 2


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tfformer {tfformer.__version__}\n"


def test_mistyped_command_gives_one_line_error_with_the_nearest_name(capsys):
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == (
        "tfformer: error: no command 'trian': did you mean train? (see --help)\n"
    )


@pytest.mark.parametrize("name", MODULES)
def test_usage_errors_begin_with_the_name_of_the_command(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--no-such-option"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"tfformer {name}: error: ")


def test_missing_package_gives_one_line_error_with_its_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "babel", None)
    monkeypatch.delitem(sys.modules, "tfformer.training.dates", raising=False)
    assert main(["dates"]) == 2
    assert capsys.readouterr().err == (
        "tfformer dates: error: babel is not installed: pip install 'tfformer[train]'\n"
    )


def test_an_option_may_need_a_larger_extra_than_its_command():
    error = ModuleNotFoundError("No module named 'sacrebleu'", name="sacrebleu")
    assert missing("translate", error).endswith("pip install 'tfformer[train]'")
    error.name = "grpc"
    assert missing("translate", error).endswith("pip install 'tfformer[serve]'")
    error.name = "tfformer.nothing"
    assert missing("translate", error) is None


def test_help_imports_neither_keras_nor_numpy():
    program = "import sys; from tfformer.__main__ import main; main([]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert not {"keras", "numpy", "tensorflow"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tfformer tra", {"train", "translate", "translate-files", "translate-export"}),
        ("tfformer train dates --epo", {"--epochs"}),
        ("tfformer  train  --epo", {"--epochs"}),
        ("tfformer export --low", {"--low-latency"}),
    ],
)
def test_a_shell_completes_commands_and_options(line, expected):
    """As argcomplete's script for bash calls it: the answer comes on file descriptor 8."""
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": os.devnull,
        "IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    shell = ["sh", "-c", f'"{sys.executable}" -m tfformer 8>&1 9>/dev/null']
    del environment["_ARGCOMPLETE_STDOUT_FILENAME"]
    done = subprocess.run(shell, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert set(done.stdout.split()) == expected


@pytest.mark.parametrize("top", ["training", "export"])
def test_module_is_the_same_object_under_both_names(top):
    for path in (ROOT / top).rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if path.name not in ("__main__.py", "beam.py") and "recipes" not in path.parts:
            first = importlib.import_module(f"tfformer.{name}")
            assert importlib.import_module(name) is first
            assert first.__spec__.name == f"tfformer.{name}"


# In Python.


def test_command_failure_raises_command_error_with_its_message(tmp_path):
    with pytest.raises(tfformer.CommandError, match="recipe must be one of .*'datess'") as raised:
        tfformer.train_model(tmp_path / "run", "datess")
    assert raised.value.exit_code == 2 and not (tmp_path / "run").exists()
    with pytest.raises(tfformer.CommandError, match="unrecognized arguments: --epoks=3: did you"):
        tfformer.train_model(tmp_path / "run", "dates", epoks=3)
    with pytest.raises(tfformer.CommandError, match="is no directory"):
        tfformer.export_run(tmp_path / "run", tmp_path / "exported")


def test_false_omits_or_negates_a_flag_and_empty_list_is_omitted(monkeypatch):
    given = []
    for module in ("training.train", "export.saved_model"):
        monkeypatch.setattr(f"tfformer.{module}.main", lambda words: given.append(words) or 0)
    tfformer.train_model("r", "dates", shared_vocabulary=False, resume=np.False_, source=[])
    assert given == [["dates", "--run=r", "--no-shared-vocabulary"]]
    with pytest.raises(StopIteration):  # nothing was exported
        tfformer.export_run("r", "d", quick=np.True_, low_latency=False)
    assert given[1] == ["r", "d", "--quick", "--no-low-latency"]


def printing(*lines):
    """A `main` that prints."""
    return lambda words: print(*lines, sep="\n") or 0


def test_warnings_are_logged_as_warnings_and_handlers_may_print(monkeypatch, caplog):
    monkeypatch.setattr("tfformer.training.train.main", printing("a line", "warning: a fault"))
    late = logging.Handler()
    late.emit = lambda record: print(record.getMessage())  # to the current sys.stdout
    logger = logging.getLogger("tfformer")
    logger.addHandler(late)
    try:
        with caplog.at_level("INFO", logger="tfformer"):
            tfformer.train_model("r")
    finally:
        logger.removeHandler(late)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "a line"), ("WARNING", "warning: a fault")
    ]  # fmt: skip


def test_threads_restore_the_standard_streams(monkeypatch):
    monkeypatch.setattr("tfformer.training.train.main", lambda words: time.sleep(0.05) or 0)
    before = sys.stdout, sys.stderr
    threads = [threading.Thread(target=tfformer.train_model, args=["r"]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.slow
def test_the_functions_train_score_export_and_verify(tmp_path, caplog, capfd):
    run, options = tmp_path / "run", {"epochs": 1, "preset": "tiny", "max_minutes": 0.02}
    with caplog.at_level("INFO", logger="tfformer"):
        assert tfformer.train_model(run, "dates", shared_vocabulary=False, **options) == run
        scores = tfformer.evaluate_run(run, recipe="dates", greedy=True)
        version = tfformer.export_run(run, tmp_path / "dates", quick=True)
        tfformer.verify_export(version)
    assert scores["pairs"] == 1000 and version == tmp_path / "dates" / "1"
    said = [record.getMessage() for record in caplog.records]
    assert any("epoch 1/1" in line for line in said) and "verified" in said
    assert capfd.readouterr().out == ""
