"""Pictures in files: drawn without a screen, there whole or not at all."""

import io

from tfformer.files import write_atomically


def pyplot():
    """Matplotlib's `pyplot`, which takes a second to import, for a machine without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def write_picture(path, figure):
    """Writes a figure as PNG, and closes it."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    pyplot().close(figure)
    write_atomically(path, picture.getvalue())
