"""The notebooks of the tutorial run from top to bottom, and are kept with what they show."""

import re
import shutil

import notebooks
import pytest
from paths import ROOT

PATHS = notebooks.paths()
NAMES = [path.stem for path in PATHS]
# What notes get wrong, or leave out, each once.
ERRORS = range(1, 15)
BOX = re.compile(r"> \*\*Notes often .*\((\d+)\):\*\*")
each = pytest.mark.parametrize("path", PATHS, ids=NAMES)


def test_they_are_numbered_from_one():
    assert [name.partition("_")[0] for name in NAMES] == [str(n) for n in range(1, 10)]


@each
def test_it_is_kept_as_it_has_run(path):
    cells = notebooks.cells(path, "code")
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert all(out.output_type != "error" for out in cell.outputs)
        assert all(out.get("name") != "stderr" for out in cell.outputs)
    assert any(cell.outputs for cell in cells)


@each
def test_what_it_draws_is_kept(path):
    for cell in notebooks.cells(path, "code"):
        if re.search(r"subplots\(|_figure\(", cell.source) and "def " not in cell.source:
            assert any("image/png" in out.get("data", {}) for out in cell.outputs), cell.source


def test_each_error_of_notes_has_a_box_with_a_line_that_proves_it():
    found = []
    for path in PATHS:
        cells = notebooks.cells(path)
        for cell, following in zip(cells, cells[1:], strict=False):
            for number in BOX.findall(cell.source):
                found.append(int(number))
                assert "> **But**" in cell.source
                assert following.cell_type == "code" and "assert" in following.source
    assert sorted(found) == list(ERRORS)


@each
def test_nothing_of_this_machine_is_kept(path):
    text = path.read_text(encoding="utf-8")
    assert str(ROOT) not in text and "/site-packages/" not in text


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """A folder that the notebooks take for the repository's, so that they write nothing into it."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "pyproject.toml").touch()
    (folder / "docs" / "tutorial").mkdir(parents=True)
    return folder / "docs" / "tutorial"


@pytest.mark.slow
@each
def test_it_runs(path, copies, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    copy = shutil.copy(path, copies)
    notebook = notebooks.runner().executed(type(path)(copy))
    # It says as much as it did when it was kept.
    kept = notebooks.cells(path, "code")
    for cell, old in zip(notebooks.runner().code_of(notebook), kept, strict=True):
        kinds = [[out.output_type for out in one.outputs] for one in (cell, old)]
        assert set(kinds[0]) == set(kinds[1]), cell.source
