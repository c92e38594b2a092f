"""A terminal that remembers what it was sent."""

import io
import re

from rich.console import Console


class Terminal(io.StringIO):
    """What a terminal is sent."""

    def isatty(self):
        return True

    def rows(self):
        """The rows that were drawn, without control characters."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [row.rstrip() for row in re.split(r"[\r\n]+", text) if row.strip()]


def terminal(width, kind="xterm"):
    """A console on a terminal of its own, whatever that of the tests is."""
    return Console(
        file=Terminal(), force_terminal=True, width=width, soft_wrap=True, _environ={"TERM": kind}
    )
