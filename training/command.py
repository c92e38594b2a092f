"""What the commands of `training` share: one line for a mistake, and a closed pipe is no error."""

import argparse
import os
import sys

# Before TensorFlow is imported: its remarks on this machine's processor are no user's concern.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class Parser(argparse.ArgumentParser):
    """An argument parser that answers wrong usage with one line and exit code 2.

    Args:
        module: a command's module; `python -m` it is the program's name.
        text: its docstring, which is the help.
    """

    def __init__(self, module, text):
        super().__init__(
            prog=f"python -m {module}",
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see --help)\n")

    def fail(self, error, code=1):
        """Says what is wrong, in one line; returns the exit code."""
        line = " ".join(str(error).split()) or type(error).__name__
        print(f"{self.prog}: error: {line}", file=sys.stderr)
        return code

    def run(self, command, arguments=None):
        """The exit code of `command(options)`; the user's interrupt takes one line too."""
        options = self.parse_args(arguments)
        try:
            return command(options)
        except KeyboardInterrupt:
            return self.fail("interrupted", 130)


def close_stdout():
    """Whoever read standard output (`head`, say) has seen enough.

    Python flushes once more when it ends: into the null device, lest it meet the closed pipe.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
