"""The walks in docs/README.md name existing functions, each used by a file of the step before."""

import re

import pytest
from paths import ROOT
from test_map import NAMED, defined

PAGE = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
WALKS = {
    title: NAMED.findall(lines)
    for title, lines in re.findall(r"\*\*(An? [a-z ]+)\*\*.*?:\n((?:\d+\. .*\n)+)", PAGE)
}


def test_there_are_three_walks():
    assert list(WALKS) == ["A training batch", "A served sentence", "An option"]


@pytest.mark.parametrize("title", WALKS)
def test_each_function_exists_and_is_used_by_an_earlier_file(title):
    seen = ""
    for path, name in WALKS[title]:
        assert name in defined(ROOT / path), f"{path} has no {name}"
        used = rf"(?<!def )(?<!class )\b{name}\b"
        assert not seen or re.search(used, seen), f"nothing before {path} uses {name}"
        seen += (ROOT / path).read_text(encoding="utf-8")
