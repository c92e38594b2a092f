"""Each row of the map of a course names existing code and an existing test."""

import ast
import re

import notebooks
import pytest
from paths import ROOT

PAGE = ROOT / "docs" / "reference" / "map.md"
NAMED = re.compile(r"`([\w/]+\.py):(\w+)`")
ROWS = [
    line
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "`" in line
]


def defined(path):
    """The names of the functions and classes of a file, also of those in a class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = ast.FunctionDef | ast.ClassDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_map_has_more_than_40_rows():
    assert len(ROWS) > 40


def test_every_notebook_is_in_the_map():
    shown = {name for row in ROWS for name in re.findall(r"\(\.\./tutorial/(\w+)\.ipynb\)", row)}
    assert shown == {path.stem for path in notebooks.paths()}


@pytest.mark.parametrize("row", ROWS, ids=[row.split(" | ")[0][2:42] for row in ROWS])
def test_row_names_existing_code_and_an_existing_test(row):
    _, code, test, _, _ = row.strip("| ").split(" | ")
    assert NAMED.search(code) and NAMED.search(test)
    for cell, is_test in ((code, False), (test, True)):
        for name, what in NAMED.findall(cell):
            assert name.startswith("tests/") == is_test
            assert what in defined(ROOT / name), f"{name} has no {what}"
