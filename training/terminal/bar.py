"""A bar that says how far a work has come: on a terminal alone, and gone when it is done.

A log file gets no bar and no control character: what is to stand there, a command says in lines.
"""

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# Cells of a bar, where the terminal has WIDE ones, and where it has fewer; and of the time.
WIDE, CELLS, FEW_CELLS, TIME_CELLS = 100, 24, 8, 8
# Of things that are counted one by one, which may be a million.
OFTEN = 256


def console(quiet=False):
    """Where progress goes: standard error, so that standard output stays the results'."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True, quiet=quiet)


class Bar:
    """A bar, to be entered; what others print on standard error meanwhile stands above it.

    Args:
        title: what is done, in a few words.
        total: how much there is to do. Default None: that is not known, and the bar only moves.
        done: how much of it was done before.
        unit: what is counted, in the plural. Default: it is not said.
        output: a console. Default: that of standard error.

    Attributes:
        done: how much is done by now.
        shown: whether there is a terminal to stand on.
    """

    def __init__(self, title, total=None, done=0, unit="", output=None):
        self.output = output or console()
        self.total, self.done, self.unit = total, done, unit
        nowhere = self.output.quiet or self.output.is_dumb_terminal  # one that moves no cursor
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
        """Another title: the next thing that is done."""
        # Beside a total there are figures.
        most = max(12, self.output.width // (2 if self.total is None else 3))
        self._title = title if len(title) <= most else f"{title[: most - 1]}…"
        self._progress.update(self._task, description=self._title)

    def expect(self, total):
        """Says how much there is to do, where it was not known before; 0 stood for it."""
        self.total = total
        self._progress.update(self._task, total=total, count=self._count())

    def to(self, done, figures=()):
        """Moves the bar.

        Args:
            done: how much is done by now.
            figures: short texts, the most important ones first; those are shown that there is
                room for beside count and time.
        """
        self.done = done
        if self.shown:
            count = self._count()
            # A cell stands between two columns.
            taken = len(self._title) + self._cells + len(count) + TIME_CELLS + 4
            texts = {"count": count, "figures": fitting(figures, self.output.width - taken)}
            self._progress.update(self._task, completed=done, **texts)

    def advance(self, number=1):
        """Moves the bar by this much."""
        self.to(self.done + number)

    def step(self, line):
        """Says a line; one that ends in "..." names the next thing that is done, and is counted."""
        print(line, file=sys.stderr, flush=True)
        if line.endswith(" ..."):
            self.name(line.removesuffix(" ..."))
            self.advance()

    def over(self, items):
        """Yields the items, and counts them."""
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
    """The first of these texts, as many as there is room for, with two spaces between them."""
    texts = list(figures)
    while texts and len("  ".join(texts)) > room:
        texts.pop()
    return "  ".join(texts)
