"""What the commands of `export` share: one line for a mistake, whatever it was."""

import argparse
import contextlib
import difflib
import errno
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

# Before TensorFlow is imported: its remarks on this machine's processor are no user's concern.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Of the garbage collector. Traced graphs are millions of objects that live on: to look through them
# as often as Python does by default is a ninth of the processor time of an export.
THRESHOLDS = (50_000, 20, 20)
CLOSED = "standard output must be open"


class Parser(argparse.ArgumentParser):
    """An argument parser that answers wrong usage with one line and exit code 2.

    Args:
        module: a command's module; `python -m` it is the program's name.
        text: its docstring, which is the help.
        prints: its result is what it prints: it does nothing if standard output is closed.
        reads: names of the arguments that are run directories, which must exist. Default: none.
        files: names of those that are files to be read. Default: none.
        new: of those that must not exist yet, {name: what the error calls it}. Default: none.
    """

    def __init__(self, module, text, prints=False, reads=(), files=(), new=None):
        super().__init__(
            prog=f"python -m {module}",
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.prints, self.reads, self.files, self.new = prints, reads, files, new or {}

    def error(self, message):
        # What `Number` says begins with the rule.
        message = re.sub(r"^argument (\S+): (?=must )", r"\1 ", message)
        if unknown := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            near = difflib.get_close_matches(unknown[1], self._option_string_actions, 1)
            message += f": did you mean {near[0]}?" if near else ""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see --help)\n")

    def fail(self, error, code=1):
        """Says what is wrong, in one line; returns the exit code."""
        line = " ".join(str(error).split()) or type(error).__name__
        if sys.stderr is not None:  # closed: then `print` would write where the results go
            print(f"{self.prog}: error: {line}", file=sys.stderr)
        return code

    def run(self, command, arguments=None):
        """The exit code of `command(options)`; Ctrl-C and SIGTERM take one line too."""
        options = self.parse_args(arguments)
        try:
            fault = self._wrong_path(options)
        except OSError as error:  # a name that is too long, or a folder of another user
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
        """What is wrong with the first path of `reads`, `files` and `new`, if anything: a mistyped
        one should not wait for the import of TensorFlow."""

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
        """The exit code of `command(options)`, 0 only if all that it printed is written too."""
        if sys.stdout is None:
            return self.fail(CLOSED) if self.prints else command(options)
        try:
            code = command(options)
            fault = _flush()
        except OSError as error:  # a command takes care of all others
            code, fault = 0, error
            _flush()
        if code or fault is None or isinstance(fault, BrokenPipeError):
            return code
        return self.fail(fault)

    @contextlib.contextmanager
    def remarks(self):
        """Inside, a result that is there is spoken of: that nobody can read it is a warning."""
        fault = None
        try:
            yield
        except OSError as error:
            fault = error
        fault = (sys.stdout and _flush()) or fault
        if fault is not None and not isinstance(fault, BrokenPipeError) and sys.stderr is not None:
            print(f"{self.prog}: warning: standard output: {fault}", file=sys.stderr)


def unreadable(path):
    """Why a file cannot be read, in words, or None. It is not opened: it may be a pipe."""
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
    """Inside, the garbage collector has `THRESHOLDS`."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _flush():
    """The OSError of standard output; None if all that was printed is written.

    What cannot be written is given up, lest Python meets the same error when it ends.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        close_stdout()
        return error
    return None


class _Interrupts:
    """Inside, SIGTERM raises `KeyboardInterrupt` as Ctrl-C does, and none of them is lost.

    Who asked not to be told of SIGTERM, as `nohup` asks of SIGHUP, is not told.

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
        """It fell into a callback, of the garbage collector say, that nothing can be raised from.

        It is sent once more, when that callback has ended.
        """
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            return self._hook(unraisable)
        number = signal.SIGTERM if self.terminated else signal.SIGINT
        main = threading.main_thread().ident
        again = threading.Timer(self.WAIT, signal.pthread_kill, [main, number])
        again.daemon = True
        again.start()


LARGEST = 2**31 - 1  # of an option without a bound of its own


class Number:
    """The type of an option that is a number, in its bounds and not nan.

    Args:
        kind: `int` or `float`.
        least, most: its bounds, both allowed.
        positive: least is 0, which is not allowed.
        rule: what a number that is too small or too large breaks. Default: the bound itself.
        nan: let it through, to who has a rule of its own.
    """

    def __init__(self, kind, least=0, most=LARGEST, positive=False, rule=None, nan=False):
        self.kind, self.least, self.most = kind, least, most
        self.positive, self.rule, self.nan = positive, rule, nan
        self.__name__ = kind.__name__

    def __call__(self, text):
        try:
            value = self.kind(text)
        except ValueError:
            # Python reads no more than 4,300 digits.
            if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
                self._refuse("be an integer" if self.kind is int else "be a number", text)
            value = -math.inf if "-" in text else math.inf
        if value != value and not self.nan:
            self._refuse("be a number", text)
        if value < self.least or (self.positive and value == 0):
            lower = "not be negative" if self.least == 0 else f"be at least {self.least}"
            self._refuse(self.rule or ("be positive" if self.positive else lower), text)
        if value > self.most:
            self._refuse(self.rule or f"be at most {self.most}", text)
        return value

    def _refuse(self, rule, text):
        shown = text if len(text) <= 40 else f"{text[:40]}... ({len(text)} characters)"
        shown = shown if shown.isprintable() else ascii(shown)
        raise argparse.ArgumentTypeError(f"must {rule}, got {shown}")


def count(most=LARGEST):
    """The type of an option that is an integer of at least 1."""
    return Number(int, 1, most)


def option_number(option):
    """The type of an option of a search, with the bounds of its table; of words it is `str`."""
    if option.kind is str:
        return str
    rule = f"be in [{option.least}, {option.most}]" if option.most < math.inf else None
    return Number(option.kind, option.least, min(option.most, LARGEST), rule=rule)


@functools.cache
def without_its_package(name):
    """A module of `tfformer` that imports no Keras, nor another that does: a table of options, say.

    It is read for a help, as if the packages that it stands in had nothing in them: `import
    tfformer` brings Keras with it, and takes seconds. Its classes are none that anybody else has.
    """
    package, *inside = name.split(".")
    [folder] = importlib.util.find_spec(package).submodule_search_locations
    known = {one: sys.modules.pop(one) for one in list(sys.modules) if _is_of(one, package)}
    try:
        for depth in range(len(inside)):
            empty = types.ModuleType(".".join([package, *inside[:depth]]))
            empty.__path__ = [str(Path(folder, *inside[:depth]))]
            sys.modules[empty.__name__] = empty
        return importlib.import_module(name)
    finally:
        for one in [one for one in sys.modules if _is_of(one, package)]:
            del sys.modules[one]
        sys.modules.update(known)


def _is_of(module, package):
    """Whether a module by its name is a package or stands in it."""
    return module == package or module.startswith(f"{package}.")


def close_stdout():
    """Whoever read standard output (`head`, say) has seen enough.

    Python flushes once more when it ends: into the null device, lest it meet the closed pipe.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# What TensorFlow writes on a machine, of no concern to a user.
REMARK = (
    r"WARNING: All log messages before absl::InitializeLog|[IW]0000 |To enable the following"
    r"|\d{4}-\d\d-\d\d .*: [IW] (external|tensorflow)"
)


def remarks_are_wanted():
    """Whether whoever began this process has asked to see them."""
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL") in ("0", "1")


# What a filter of its own process runs: it passes on what is no remark, also if this one aborts.
_FILTER = """
import re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
for line in sys.stdin.buffer:
    if not re.match(sys.argv[1].encode(), line):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
"""


class _Quietly(importlib.abc.MetaPathFinder):
    """Holds file descriptor 2 while TensorFlow is imported, and passes on what is no remark of it.

    TensorFlow 2.21 writes six lines on this machine's processor and on GPUs that there are not,
    before anybody can tell it not to. Whoever sets TF_CPP_MIN_LOG_LEVEL to 0 or 1 sees them.
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
        """Runs it; what it writes to file descriptor 2 goes through the filter."""
        try:
            kept = os.dup(2)
        except OSError:  # it is closed
            return run()
        command = [sys.executable, "-I", "-S", "-c", _FILTER, REMARK]
        # Its standard output is our standard error.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=kept) as passing:
            os.dup2(passing.stdin.fileno(), 2)
            try:
                run()
            finally:
                os.dup2(kept, 2)
                os.close(kept)


if not any(type(finder).__name__ == "_Quietly" for finder in sys.meta_path):
    sys.meta_path.insert(0, _Quietly())
