"""Writes pictures to files, without a screen. A file is complete or absent."""

import io
import sys
from pathlib import Path

from tfformer.files import write_atomically


def pyplot():
    """Imports Matplotlib's `pyplot`, which takes a second, for a machine without a screen.

    If it was imported before, for example by a notebook, its backend is kept.
    """
    if "matplotlib.pyplot" not in sys.modules:
        import matplotlib

        matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def grid(count, columns, size):
    """(a figure of `size` inches, its `count` panels), which stand in `columns` columns."""
    shape = {"figsize": size, "layout": "constrained", "squeeze": False}
    figure, panels = pyplot().subplots(-(-count // columns), columns, **shape)
    for ax in panels.flat[count:]:
        ax.remove()
    return figure, list(panels.flat[:count])


def write_picture(path, figure, *others):
    """Writes a figure to one or more paths and closes it: as SVG if the name ends in .svg, else as
    PNG."""
    for one in map(Path, (path, *others)):
        picture = io.BytesIO()
        figure.savefig(picture, format="svg" if one.suffix == ".svg" else "png", dpi=120)
        write_atomically(one, picture.getvalue())
    pyplot().close(figure)
