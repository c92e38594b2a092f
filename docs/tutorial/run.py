"""Runs the notebooks of the tutorial and keeps what they show: `make tutorial`.

    python docs/tutorial/run.py [NAME ...]

Without a NAME, all notebooks run. A NAME is a number such as 4, or the beginning of a file name.
Each runs from top to bottom and is written with its outputs, first the English one, then the
Chinese one. The Chinese pictures need a font with Chinese characters, such as Noto Sans CJK.
Notebook 4 trains the translator that 5, 9 and 16 read, in `runs/tutorial`.
"""

import argparse
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
SECONDS = 900
# How a cell is shown: JupyterLab reads the first, the site the second.
SHOWN = ("jupyter", "tags")


def number_of(path):
    """The number of a notebook, which begins its name."""
    return int(path.stem.partition("_")[0])


def notebooks(names):
    """The paths of the English notebooks of these names, in the order of their numbers."""
    paths = sorted(HERE.glob("*.ipynb"), key=number_of)
    return [path for path in paths if any(is_of(path, name) for name in names)]


def is_of(path, name):
    """Whether a notebook has this number, or a name that begins so: 1 is not 10."""
    return number_of(path) == int(name) if name.isdecimal() else path.name.startswith(name)


def chinese(path):
    """The path of the Chinese notebook of an English one."""
    return path.parent / "zh" / path.name


def code_of(notebook):
    """The cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def executed(path):
    """The notebook of a path, run from top to bottom in its own folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    options = {"timeout": SECONDS, "record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, resources=folder, **options).execute()
    notebook.metadata = nbformat.from_dict(KERNEL)
    for cell in code_of(notebook):
        # The check of the exercises stays folded, see `SHOWN`.
        kept = {name: value for name, value in cell.metadata.items() if name in SHOWN}
        cell.metadata = nbformat.from_dict(kept)
        # What libraries say of the machine is no result.
        cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    return notebook


def main():
    """The command."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("names", nargs="*", default=[""], metavar="NAME")
    names = parser.parse_args().names
    found = notebooks(names)
    if not found:
        parser.error(f"no notebook is called {' or '.join(names)}")
    for path in found:
        for written in (path, chinese(path)):
            print(written.relative_to(HERE), flush=True)
            nbformat.write(executed(written), written)


if __name__ == "__main__":
    main()
