"""Pictures in files: drawn without a screen, there whole or not at all."""

import io
import sys
from pathlib import Path

from tfformer.files import write_atomically


def pyplot():
    """Matplotlib's `pyplot`, which takes a second to import, for a machine without a screen.

    Who has imported it before, such as a notebook, has chosen where figures go, and keeps that.
    """
    if "matplotlib.pyplot" not in sys.modules:
        import matplotlib

        matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def write_picture(path, figure, *others):
    """Writes a figure to one path or several, as SVG where a name says so and else as PNG; closes
    it."""
    for one in map(Path, (path, *others)):
        picture = io.BytesIO()
        figure.savefig(picture, format="svg" if one.suffix == ".svg" else "png", dpi=120)
        write_atomically(one, picture.getvalue())
    pyplot().close(figure)
