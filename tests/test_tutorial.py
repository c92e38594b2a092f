"""The notebooks of the tutorial run from top to bottom, and are stored with their output."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import notebooks
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from paths import ROOT
from tiers import slow_or_nightly

PATHS = notebooks.paths()
NAMES = [path.stem for path in PATHS]
TRAINS, READ_A_RUN = "4_learning", ("5_search", "9_serving", "16_cause")
# What notes get wrong or leave out; each number occurs once.
ERRORS = range(1, 15)
BOX = re.compile(r"> \*\*Notes often .*\((\d+)\):\*\*")
each = pytest.mark.parametrize("path", PATHS, ids=NAMES)


def test_notebooks_are_numbered_from_one():
    assert [name.partition("_")[0] for name in NAMES] == [str(n) for n in range(1, 18)]


@each
def test_notebook_is_stored_with_its_output_and_no_errors(path):
    cells = notebooks.cells(path, "code")
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert all(out.output_type != "error" for out in cell.outputs)
        assert all(out.get("name") != "stderr" for out in cell.outputs)
    assert any(cell.outputs for cell in cells)


@each
def test_no_output_shows_the_address_of_an_object(path):
    for page in (path, notebooks.TUTORIAL / "zh" / path.name):
        for cell in notebooks.cells(page, "code"):
            assert not re.search(r" at 0x[0-9a-f]+>", str(cell.outputs)), cell.source


@each
def test_figures_are_stored_in_the_notebook(path):
    for cell in notebooks.cells(path, "code"):
        if re.search(r"subplots\(|_figure\(", cell.source):
            assert any("image/png" in out.get("data", {}) for out in cell.outputs), cell.source


def test_each_listed_error_has_a_box_followed_by_an_assertion():
    found = []
    for path in PATHS:
        cells = notebooks.cells(path)
        for cell, following in zip(cells, cells[1:], strict=False):
            for number in BOX.findall(cell.source):
                found.append(int(number))
                assert "> **But**" in cell.source
                assert following.cell_type == "code"
                assert re.search(r"^ *(assert |np\.testing\.)", following.source, re.MULTILINE)
    assert sorted(found) == list(ERRORS)


@each
def test_notebook_ends_with_three_exercises_and_checked_solutions(path):
    cells = notebooks.cells(path)
    [at] = [n for n, cell in enumerate(cells) if "<details>" in cell.source]
    questions, solutions = cells[at].source.split("<details>")
    for part in (questions, solutions):
        assert re.findall(r"^\d(?=\. )", part, re.MULTILINE) == ["1", "2", "3"]
    check, try_this = cells[at + 1 : at + 3]
    assert check.metadata["jupyter"]["source_hidden"]
    assert re.findall(r"  # (\d)$", check.source, re.MULTILINE) == ["1", "2", "3"]
    assert try_this.source.startswith("# Try this: ")


@each
def test_notebook_contains_no_local_paths(path):
    text = path.read_text(encoding="utf-8")
    assert str(ROOT) not in text and "/site-packages/" not in text


def test_all_notebooks_start_with_the_same_cell():
    assert len({notebooks.cells(path, "code")[0].source for path in PATHS}) == 1


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Runs the first cell of the notebooks in a folder, and returns the commands that it runs."""
    source = TransformerManager().transform_cell(notebooks.cells(PATHS[0], "code")[0].source)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")

    def run(folder):
        asked = []

        def clone(command, check):
            asked.append(command)
            command[-1].mkdir()

        def magic(name, words):
            if name != "matplotlib":
                asked.append(f"{name} {words}")

        monkeypatch.chdir(folder)
        monkeypatch.setattr(subprocess, "run", clone)
        shell = SimpleNamespace(run_line_magic=magic)
        exec(source, {"get_ipython": lambda: shell})
        return asked

    return run


@pytest.mark.parametrize("place", ["docs/tutorial/zh", "tfformer-copy"])
def test_first_cell_only_changes_folder_when_the_package_is_installed(begin, place, tmp_path):
    (tmp_path / place).mkdir(parents=True)
    cloned = place == "tfformer-copy"
    assert begin(tmp_path if cloned else tmp_path / place) == []
    assert Path.cwd() == (tmp_path / place if cloned else tmp_path)
    assert sys.path[0] == os.getcwd()


def test_in_colab_the_first_cell_fetches_the_repository_and_installs_it(
    begin, tmp_path, monkeypatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    clone, install = begin(tmp_path)
    assert clone[:2] == ["git", "clone"] and clone[-1] == Path("tfformer-copy")
    assert install == 'pip install --quiet --editable "{root}[train]"'
    assert Path.cwd() == tmp_path / "tfformer-copy"


@pytest.fixture(scope="module")
def execute(tmp_path_factory):
    """Runs a notebook in a copy of the repository's folders, so nothing is written here.

    Some notebooks read the translator that the fourth trains, so the fourth runs first.
    """
    folder = tmp_path_factory.mktemp("tutorial")
    copies = folder / "docs" / "tutorial"
    copies.mkdir(parents=True)
    runner, found = notebooks.runner(), {}

    def run(name):
        if name in READ_A_RUN:
            run(TRAINS)
        if name not in found:
            [path] = (path for path in PATHS if path.stem == name)
            found[name] = runner.executed(Path(shutil.copy(path, copies)))
        return found[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield run


# Notebooks that take a minute or more, or read what such a notebook has trained.
LONG = {
    "2_positions", "4_learning", "5_search", "7_recurrent", "9_serving", "11_pretraining",
    "12_copying", "14_ways_to_train", "15_zoo_of_bugs", "16_cause", "17_all_at_once",
}  # fmt: skip
SHORT = [path for path in PATHS if path.stem not in LONG]


@pytest.mark.parametrize("path", slow_or_nightly(PATHS, SHORT), ids=NAMES)
def test_notebook_runs_and_gives_the_stored_kinds_of_output(path, execute):
    ran = (cell for cell in execute(path.stem).cells if cell.cell_type == "code")
    for cell, kept in zip(ran, notebooks.cells(path, "code"), strict=True):
        said, before = ({out.output_type for out in one.outputs} for one in (cell, kept))
        assert said == before, cell.source
