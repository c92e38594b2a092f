"""The parser of all commands, which reports each error in one line."""

import argparse
import contextlib
import difflib
import errno
import gc
import importlib
import importlib.abc
import importlib.machinery
import math
import os
import re
import signal
import subprocess
import sys
import threading

# Set before TensorFlow is imported: users do not need its log lines about the processor.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# For the garbage collector. Traced graphs are millions of long-lived objects. With Python's default
# thresholds, collecting takes a ninth of the processor time of an export.
THRESHOLDS = (50_000, 20, 20)
CLOSED = "standard output must be open"
# The program's name in usage and errors, if it is not `python -m MODULE`.
called_as: str | None = None


class Parser(argparse.ArgumentParser):
    """An argument parser that reports wrong usage in one line, with exit code 2.

    Args:
        module: the command's module. The program's name is `python -m` and this name, unless
            `called_as` is set.
        text: the module's docstring, which is the help text.
        prints: whether the command's result is its output. Then it does not run if standard output
            is closed.
        reads: names of the arguments that are run directories, which must exist. Default: none.
        files: names of the arguments that are files to be read. Default: none.
        new: {name: its name in the error} of the arguments that are paths which must not exist
            yet. Default: none.
    """

    def __init__(self, module, text, prints=False, reads=(), files=(), new=None):
        super().__init__(
            prog=called_as or _python_m(module),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.prints, self.reads, self.files, self.new = prints, reads, files, new or {}

    def error(self, message):
        # Messages of `Number` begin with the rule.
        message = re.sub(r"^argument (\S+): (?=must )", r"\1 ", message)
        if unknown := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            near = difflib.get_close_matches(unknown[1], self._option_string_actions, 1)
            message += f": did you mean {near[0]}?" if near else ""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see --help)\n")

    def fail(self, error, code=1):
        """Prints the error in one line. Returns the exit code."""
        line = " ".join(str(error).split()) or type(error).__name__
        if sys.stderr is not None:  # if it is None, `print` would write to standard output
            print(f"{self.prog}: error: {line}", file=sys.stderr)
        return code

    def run(self, command, arguments=None):
        """Runs `command(options)` and returns its exit code. Ctrl-C and SIGTERM print one line."""
        if "_ARGCOMPLETE" in os.environ:  # the shell completes a command line
            import argcomplete

            argcomplete.autocomplete(self)
        options = self.parse_args(arguments)
        try:
            fault = self._wrong_path(options)
        except OSError as error:  # the name is too long, or the folder is not accessible
            fault = error
        if fault:
            return self.fail(fault)
        with _rare_collections(), _Interrupts() as interrupts:
            try:
                return self._written(command, options)
            except KeyboardInterrupt:
                if interrupts.terminated:
                    return self.fail("stopped by SIGTERM", 143)
                return self.fail("interrupted", 130)

    def _wrong_path(self, options):
        """The first error of the paths in `reads`, `files` and `new`, or None. So a mistyped path
        is reported before TensorFlow is imported."""

        def given(names):
            for name in names:
                paths = getattr(options, name) or []
                yield from paths if isinstance(paths, list) else [paths]

        for path in given(self.reads):
            if not path.is_dir():
                return f"{path} is no directory"
            if not (path / "config.json").exists():
                return f"{path} is no run directory: it has no config.json"
        for path in given(self.files):
            if reason := unreadable(path):
                return f"cannot read {path}: {reason}"
        for name, shown in self.new.items():
            if os.path.lexists(getattr(options, name)):
                return f"{shown} must not exist yet, got {getattr(options, name)}"
        return None

    def _written(self, command, options):
        """The exit code of `command(options)`; 0 only if all of its output could be written."""
        if sys.stdout is None:
            return self.fail(CLOSED) if self.prints else command(options)
        try:
            code = command(options)
            fault = _flush()
        except OSError as error:  # of standard output: a command handles all others
            code, fault = 0, error
            _flush()
        if code or fault is None or isinstance(fault, BrokenPipeError):
            return code
        return self.fail(fault)

    @contextlib.contextmanager
    def remarks(self):
        """For output about a finished result: in this block, a failed write is only a warning."""
        fault = None
        try:
            yield
        except OSError as error:
            fault = error
        fault = (sys.stdout and _flush()) or fault
        if fault is not None and not isinstance(fault, BrokenPipeError) and sys.stderr is not None:
            print(f"{self.prog}: warning: standard output: {fault}", file=sys.stderr)


def main_of(parser, run):
    """The `main` of a command, which returns its exit code.

    Args:
        parser: a function that makes the command's `Parser`.
        run: a function of the parser and the options that returns the exit code.
    """

    def main(arguments=None):
        command = parser()
        return command.run(lambda options: run(command, options), arguments)

    return main


def _python_m(module):
    """`python -m MODULE`, with the module's name in this installation."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name if spec and spec.name.endswith(f".{module}") else module
    return f"python -m {name}"


def unreadable(path):
    """The reason why a file cannot be read, or None. It is not opened, as it may be a pipe."""
    for wrong, number in (
        (not os.path.exists(path), errno.ENOENT),
        (os.path.isdir(path), errno.EISDIR),
        (not os.access(path, os.R_OK), errno.EACCES),
    ):
        if wrong:
            return os.strerror(number)
    return None


@contextlib.contextmanager
def _rare_collections():
    """In this block, the garbage collector uses `THRESHOLDS`."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _flush():
    """Flushes standard output. Returns the OSError if that fails, else None.

    Output that cannot be written is discarded. Otherwise Python would fail again when it ends.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        close_stdout()
        return error
    return None


class _Interrupts:
    """In this block, SIGTERM raises `KeyboardInterrupt`, as Ctrl-C does, and no signal is lost.

    If the caller had SIGTERM ignored, as `nohup` does with SIGHUP, it stays ignored.

    Attributes:
        terminated: whether SIGTERM came.
    """

    WAIT = 0.01  # seconds

    def __init__(self):
        self.terminated = False

    def __enter__(self):
        self._hook, self._own = sys.unraisablehook, False
        if threading.current_thread() is threading.main_thread():
            sys.unraisablehook = self._lost
            self._own = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._own:
            signal.signal(signal.SIGTERM, self._terminate)
        return self

    def __exit__(self, *_):
        sys.unraisablehook = self._hook
        if self._own:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _terminate(self, *_):
        self.terminated = True
        raise KeyboardInterrupt

    def _lost(self, unraisable):
        """Handles a `KeyboardInterrupt` inside a callback, such as one of the garbage collector.

        No exception can leave a callback, so the signal is sent again a moment later.
        """
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            return self._hook(unraisable)
        number = signal.SIGTERM if self.terminated else signal.SIGINT
        main = threading.main_thread().ident
        again = threading.Timer(self.WAIT, signal.pthread_kill, [main, number])
        again.daemon = True
        again.start()


LARGEST = 2**31 - 1  # the maximum of an option without its own bound


class Number:
    """The argparse type of an option that is a number within bounds and not NaN.

    Args:
        kind: `int` or `float`.
        minimum, maximum: minimum and maximum, both allowed.
        positive: whether 0 is not allowed; `minimum` is 0 then.
        rule: the rule in the error for a number out of bounds. Default: the bound itself.
        nan: whether to accept NaN, because the caller checks it.
    """

    def __init__(self, kind, minimum=0, maximum=LARGEST, positive=False, rule=None, nan=False):
        self.kind, self.minimum, self.maximum = kind, minimum, maximum
        self.positive, self.rule, self.nan = positive, rule, nan
        self.__name__ = kind.__name__

    def __call__(self, text):
        try:
            value = self.kind(text)
        except ValueError:
            # `int` reads at most 4,300 digits.
            if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
                self._refuse("be an integer" if self.kind is int else "be a number", text)
            value = -math.inf if "-" in text else math.inf
        if value != value and not self.nan:
            self._refuse("be a number", text)
        if value < self.minimum or (self.positive and value == 0):
            lower = "not be negative" if self.minimum == 0 else f"be at least {self.minimum}"
            self._refuse(self.rule or ("be positive" if self.positive else lower), text)
        if value > self.maximum:
            self._refuse(self.rule or f"be at most {self.maximum}", text)
        return value

    def _refuse(self, rule, text):
        shown = text if len(text) <= 40 else f"{text[:40]}... ({len(text)} characters)"
        shown = shown if shown.isprintable() else ascii(shown)
        raise argparse.ArgumentTypeError(f"must {rule}, got {shown}")


def count(maximum=LARGEST):
    """The argparse type of an integer of at least 1."""
    return Number(int, 1, maximum)


def option_number(option):
    """The argparse type of a search option, with the bounds of its table; `str` for words."""
    if option.kind is str:
        return str
    rule = f"be in [{option.minimum}, {option.maximum}]" if option.maximum < math.inf else None
    return Number(option.kind, option.minimum, min(option.maximum, LARGEST), rule=rule)


def close_stdout():
    """Sends the rest of standard output to the null device, after its reader has closed the pipe.

    For example, `head` closes it. Python flushes once more when it ends; that would fail otherwise.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Log lines of TensorFlow about the machine, which users do not need.
REMARK = (
    r"WARNING: All log messages before absl::InitializeLog|[IW]0000 |To enable the following"
    r"|\d{4}-\d\d-\d\d .*: [IW] (external|tensorflow)"
)


def remarks_are_wanted():
    """Whether the user has asked to see TensorFlow's log lines."""
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL") in ("0", "1")


# The program of a filter process: it passes on all lines but TensorFlow's log lines. It is a
# separate process, so it also works if this one aborts.
_FILTER = """
import re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
for line in sys.stdin.buffer:
    if not re.match(sys.argv[1].encode(), line):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
"""


class _Quietly(importlib.abc.MetaPathFinder):
    """Filters file descriptor 2 while TensorFlow is imported: its log lines are removed.

    On import, TensorFlow 2.21 writes six lines about the processor and missing GPUs, and no setting
    prevents that. They are shown if TF_CPP_MIN_LOG_LEVEL is 0 or 1.
    """

    NAMES = ("tensorflow", "tensorflow_text")

    def find_spec(self, name, path, target=None):
        if name not in self.NAMES or remarks_are_wanted():
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: self.held(lambda: run(module))
        return spec

    def held(self, run):
        """Calls `run`. Its output to file descriptor 2 goes through the filter."""
        try:
            kept = os.dup(2)
        except OSError:  # standard error is closed
            return run()
        command = [sys.executable, "-I", "-S", "-c", _FILTER, REMARK]
        # The filter's standard output is our standard error.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=kept) as passing:
            os.dup2(passing.stdin.fileno(), 2)
            try:
                run()
            finally:
                os.dup2(kept, 2)
                os.close(kept)


sys.meta_path.insert(0, _Quietly())
