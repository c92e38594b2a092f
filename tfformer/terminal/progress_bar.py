"""A progress bar. It is shown only on a terminal and removed at the end.

A log file gets neither a bar nor control characters. For a log, commands print lines.
"""

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# Widths in characters: a terminal is wide from WIDE on. The bar has CELLS on a wide terminal and
# FEW_CELLS on others; the time has TIME_CELLS.
WIDE, CELLS, FEW_CELLS, TIME_CELLS = 100, 24, 8, 8
# `Bar.over` redraws the bar after this many items, because there may be a million.
OFTEN = 256


def console(quiet=False):
    """The console for progress: standard error, because standard output is for results."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True, quiet=quiet)


class Bar:
    """A progress bar, used as a context manager. Other lines on standard error appear above it.

    Args:
        title: the current work in a few words.
        total: the amount of work. Default None: unknown, and the bar only shows activity.
        done: the amount done before.
        unit: what is counted, in the plural. Default: not shown.
        output: a console. Default: that of standard error.

    Attributes:
        done: the amount done so far.
        shown: whether the output is a terminal that can show the bar.
    """

    def __init__(self, title, total=None, done=0, unit="", output=None):
        self.output = output or console()
        self.total, self.done, self.unit = total, done, unit
        nowhere = self.output.quiet or self.output.is_dumb_terminal  # it cannot move the cursor
        self.shown = self.output.file.isatty() and not nowhere
        self._cells = CELLS if self.output.width >= WIDE else FEW_CELLS
        names = ("description", "fields[count]", "fields[figures]")
        title_column, count, figures = (
            TextColumn(f"{{task.{name}}}", markup=False) for name in names
        )
        time = TimeElapsedColumn() if total is None else TimeRemainingColumn()
        self._progress = Progress(
            title_column, BarColumn(self._cells), count, figures, time,
            console=self.output, transient=True, disable=not self.shown, redirect_stdout=False,
        )  # fmt: skip
        texts = {"count": self._count(), "figures": ""}
        self._task = self._progress.add_task("", total=total, completed=done, **texts)
        self.name(title)

    def __enter__(self):
        self._progress.start()
        return self

    def __exit__(self, *_):
        self._progress.stop()

    def name(self, title):
        """Changes the title to the next step of the work."""
        # A bar with a total also needs space for figures.
        maximum = max(12, self.output.width // (2 if self.total is None else 3))
        self._title = title if len(title) <= maximum else f"{title[: maximum - 1]}…"
        self._progress.update(self._task, description=self._title)

    def to(self, done, figures=()):
        """Moves the bar.

        Args:
            done: the amount done so far.
            figures: short texts, the most important first. As many are shown as fit beside count
                and time.
        """
        self.done = done
        if self.shown:
            count = self._count()
            # One space separates two columns.
            taken = len(self._title) + self._cells + len(count) + TIME_CELLS + 4
            texts = {"count": count, "figures": fitting(figures, self.output.width - taken)}
            self._progress.update(self._task, completed=done, **texts)

    def advance(self, number=1):
        """Moves the bar by `number`."""
        self.to(self.done + number)

    def step(self, line):
        """Prints a line. If it ends in " ...", it is the next title and counts as one step."""
        print(line, file=sys.stderr, flush=True)
        if line.endswith(" ..."):
            self.name(line.removesuffix(" ..."))
            self.advance()

    def over(self, items):
        """Yields the items and counts them."""
        for item in items:
            yield item
            self.done += 1
            if self.shown and self.done % OFTEN == 0:
                self.to(self.done)

    def _count(self):
        if self.total is not None:
            total = f"{self.total:,}"
            return f"{self.done:>{len(total)},}/{total} {self.unit}".rstrip()
        return f"{self.done:,} {self.unit}" if self.unit else ""


def fitting(figures, room):
    """As many of the first texts as fit into `room` characters, separated by two spaces."""
    texts = list(figures)
    while texts and len("  ".join(texts)) > room:
        texts.pop()
    return "  ".join(texts)
