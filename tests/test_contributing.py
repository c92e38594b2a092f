"""The table "Which file to change" of CONTRIBUTING.md names existing files and names."""

import re

import pytest
from paths import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TABLE = PAGE.split("## Which file to change")[1]
PATHS = sorted(
    {path for path in re.findall(r"`([\w/.]+/[\w.]*)`", TABLE) if not re.search("NAME", path)}
)
# "`FAMILIES` of `tfformer/models/__init__.py`"
NAMES = re.findall(r"`(\w+)`(?:, `\w+` and `\w+`)? of `([\w/]+\.py)`", TABLE)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_exists(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("name", "path"), NAMES)
def test_a_name_is_defined_in_its_file(name, path):
    code = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^\s*({name}\b.* = |(class|def) {name}\b)", code, re.MULTILINE)


def test_the_table_is_read():
    assert len(PATHS) > 35 and len(NAMES) > 20
