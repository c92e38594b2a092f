"""A terminal that records its input."""

import io
import re

from rich.console import Console


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self):
        return True

    def rows(self):
        """The rows on the terminal, without control characters."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [row.rstrip() for row in re.split(r"[\r\n]+", text) if row.strip()]


def terminal(width, kind="xterm"):
    """A console on such a terminal, whatever terminal the tests have."""
    return Console(
        file=Terminal(), force_terminal=True, width=width, soft_wrap=True, _environ={"TERM": kind}
    )
