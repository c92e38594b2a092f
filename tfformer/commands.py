"""The main commands as functions, for notebooks and programs.

A function has the options of its command, with underscores for hyphens:
`tfformer train --source a.en --target a.de --run runs/a --epochs 3` is
`train_model("runs/a", source="a.en", target="a.de", epochs=3)`. `True` and `False` stand for an
option and its `--no-` form, a list for several values, `None` for an option that is not given.

What a command prints goes to the logger "tfformer", a line each: warnings at the level WARNING, all
else at INFO. To see both: `logging.basicConfig(level=logging.INFO)`. One command runs at a time.
Meanwhile, the output of other threads goes to the logger too.
"""

import contextlib
import importlib
import io
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfformer.annotations import StrPath
from tfformer.files import read_json
from tfformer.terminal.extras import missing

_ONE_AT_A_TIME = threading.Lock()


class CommandError(RuntimeError):
    """A command has failed; the message is the line that it prints.

    Attributes:
        exit_code: that of the command: 1 data or disk, 2 wrong usage, 3 a training that diverged.

    Example:
        >>> error = tfformer.CommandError("runs/none is no directory", 1)
        >>> print(error, error.exit_code)
        runs/none is no directory 1
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def train_model(run: StrPath, recipe: StrPath | None = None, **options: Any) -> Path:
    """Train a model, as `tfformer train` does.

    Args:
        run: the run directory.
        recipe: the name of a recipe or a `.py` file. Default: settings chosen from the corpus.
        **options: see `tfformer train --help-all`; for example `source`, `target`, `epochs`,
            `resume`.

    Returns:
        The run directory, a Path.

    Raises:
        CommandError: an option, the corpus or the disk is at fault, or the training diverged.
        KeyboardInterrupt: it was interrupted; `resume=True` goes on.

    Example:
        >>> try:
        ...     tfformer.train_model("runs/mine", source="none.en", target="none.de")
        ... except tfformer.CommandError as error:
        ...     print(error)
        cannot read none.en: No such file or directory
    """
    _run("training.train", [recipe] if recipe else [], {"run": run, **options})
    return Path(run)


def evaluate_run(run: StrPath, **options: Any) -> dict[str, Any]:
    """Score a run on a test set, as `tfformer evaluate` does.

    Args:
        run: the run directory.
        **options: see `tfformer evaluate --help`; for example `source`, `target`, `beam_width`.

    Returns:
        The scores, as `evaluation.json` has them: a dictionary.

    Raises:
        CommandError: an option, the run or the test set is at fault.

    Example:
        >>> try:
        ...     tfformer.evaluate_run("runs/none", source="test.en", target="test.de")["bleu"]
        ... except tfformer.CommandError as error:
        ...     print(error)
        runs/none is no directory
    """
    output = options.get("output")
    with tempfile.TemporaryDirectory() as folder:
        if output is None and not os.access(run, os.W_OK):
            options["output"] = output = Path(folder, "evaluation.json")
        _run("training.evaluate", [run], options)
        return read_json(Path(output or Path(run) / "evaluation.json"))


def export_run(run: StrPath, directory: StrPath, **options: Any) -> Path:
    """Export and verify the next version of a SavedModel, as `tfformer export` does.

    Args:
        run: the run directory.
        directory: the base directory of the versions. Its name is the model's name.
        **options: see `tfformer export --help`; for example `quick`, `low_latency`.

    Returns:
        The directory of the version, a Path.

    Raises:
        CommandError: an option, the run or the disk is at fault, or the model was not verified.
            Then nothing is published.

    Example:
        >>> try:
        ...     tfformer.export_run("runs/none", "exported/mine")
        ... except tfformer.CommandError as error:
        ...     print(error)
        runs/none is no directory
    """
    lines = _run("export.saved_model", [run, directory], options)
    return Path(next(line for line in lines if line.startswith("exported")).partition(": ")[2])


def verify_export(directory: StrPath, **options: Any) -> None:
    """Check that a SavedModel serves, as `tfformer verify` does.

    Args:
        directory: a SavedModel, or a base directory of numbered versions.
        **options: see `tfformer verify --help`.

    Raises:
        CommandError: the model was not verified; the message says why.

    Example:
        >>> try:
        ...     tfformer.verify_export("exported/none")
        ... except tfformer.CommandError as error:
        ...     print(error)
        directory must exist, got 'exported/none'
    """
    _run("export.verify", [directory], options)


def import_hf(folder: StrPath, run: StrPath, **options: Any) -> Path:
    """Make a run of a model of Hugging Face, as `tfformer import` does.

    Args:
        folder: the model's folder, or its name on the hub.
        run: the new run directory.
        **options: see `tfformer import --help`.

    Returns:
        The run directory, a Path.

    Raises:
        CommandError: the folder or the disk is at fault. Then nothing is written.

    Example:
        >>> try:
        ...     tfformer.import_hf("none", "runs/imported")
        ... except tfformer.CommandError as error:
        ...     print(error)
        FOLDER must be a folder or a name on the hub, as ORGANISATION/MODEL, got none
    """
    _run("training.import_hf", [folder, run], options)
    return Path(run)


def import_marian(folder: StrPath, run: StrPath, **options: Any) -> Path:
    """Make a run of a Marian model of Hugging Face, as `tfformer import-marian` does.

    Args:
        folder: the model's folder, or its name on the hub.
        run: the new run directory.
        **options: see `tfformer import-marian --help`.

    Returns:
        The run directory, a Path.

    Raises:
        CommandError: the folder or the disk is at fault. Then nothing is written.

    Example:
        >>> try:
        ...     tfformer.import_marian("none", "runs/imported")
        ... except tfformer.CommandError as error:
        ...     print(error)
        FOLDER must be a folder or a name on the hub, as ORGANISATION/MODEL, got none
    """
    _run("training.import_marian", [folder, run], options)
    return Path(run)


def import_opennmt(folder: StrPath, run: StrPath, **options: Any) -> Path:
    """Make a run of a checkpoint of OpenNMT-tf 2, as `tfformer import-opennmt` does.

    Args:
        folder: the folder of the checkpoint.
        run: the new run directory.
        **options: see `tfformer import-opennmt --help`; `vocabulary` is needed.

    Returns:
        The run directory, a Path.

    Raises:
        CommandError: a file or the disk is at fault. Then nothing is written.

    Example:
        >>> try:
        ...     tfformer.import_opennmt("none", "runs/imported", vocabulary="shared.vocab")
        ... except tfformer.CommandError as error:
        ...     print(error)
        cannot read shared.vocab: No such file or directory
    """
    _run("training.import_opennmt", [folder, run], options)
    return Path(run)


def _run(module: str, arguments: Iterable[StrPath], options: dict[str, Any]) -> list[str]:
    """Runs a command in this process and returns the lines that it prints; raises its error."""
    with _ONE_AT_A_TIME:
        output = _Log(sys.stderr)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                command = importlib.import_module(f"tfformer.{module}")
                for name, value in getattr(command, "ENVIRONMENT", {}).items():
                    os.environ.setdefault(name, value)
                code = command.main(_words(command, arguments, options))
        except SystemExit as ended:
            code = ended.code
        except ModuleNotFoundError as error:
            line = missing(module.partition(".")[2], error)
            if line is None:
                raise
            raise CommandError(line, 2) from None
        finally:
            output.release()
    if code == 130:
        raise KeyboardInterrupt
    if code:
        last = output.lines[-1] if output.lines else f"exit code {code}"
        raise CommandError(last.partition("error: ")[2] or last, code)
    return output.lines


def _words(command: Any, arguments: Iterable[StrPath], options: dict[str, Any]) -> list[str]:
    """The words of a command line."""
    words = [str(argument) for argument in arguments]
    parser = getattr(command, "parser", None)
    known = parser()._option_string_actions if parser else {}
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        no = f"--no-{flag[2:]}"
        if isinstance(value, list | tuple):
            words += [flag, *map(str, value)] if value else []
        elif str(value) == "True":  # also NumPy's
            words.append(flag)
        elif str(value) == "False":
            words += [no] if no in known else []
        elif value is not None:
            words.append(f"{flag}={value}")
    return words


class _Log(io.TextIOBase):
    """A text stream whose lines go to the logger "tfformer".

    Args:
        stream: receives what a handler of the logger itself writes to this stream.

    Attributes:
        lines: all lines so far.
    """

    def __init__(self, stream: Any) -> None:
        self.stream, self.lines = stream, list[str]()
        self._begun, self._logging = "", False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._logging:
            return self.stream.write(text) if self.stream is not None else len(text)
        *lines, self._begun = (self._begun + text).split("\n")
        self._logging = True
        try:
            for line in filter(str.strip, lines):
                self.lines.append(line)
                warns = line.startswith("warning: ") or ": warning: " in line
                level = logging.WARNING if warns else logging.INFO
                logging.getLogger("tfformer").log(level, "%s", line)
        finally:
            self._logging = False
        return len(text)

    def release(self) -> None:
        """Gives handlers that were made meanwhile the stream from before."""
        for handler in logging.getLogger().handlers:
            if getattr(handler, "stream", None) is self:
                handler.setStream(self.stream)  # type: ignore[attr-defined]
