"""The notebooks of the tutorial, and the file that runs them."""

import importlib.util

import nbformat
from paths import ROOT

TUTORIAL = ROOT / "docs" / "tutorial"


def runner():
    """The module `docs/tutorial/run.py`."""
    spec = importlib.util.spec_from_file_location("run_notebooks", TUTORIAL / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def paths():
    """The English notebooks, in the order of their numbers."""
    return runner().notebooks([""])


def cells(path, kind=None):
    """The cells of a notebook, or those of one kind."""
    found = nbformat.read(path, as_version=4).cells
    return [cell for cell in found if kind in (None, cell.cell_type)]
