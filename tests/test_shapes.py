"""Each line of the library that gives a tensor another shape says which, in a comment."""

import ast
import re

import pytest
from paths import ROOT

RESHAPING = {"expand_dims", "reshape", "squeeze", "swapaxes", "transpose"}
FILES = sorted((ROOT / "tfformer").rglob("*.py"))


def silent(source: str) -> list[int]:
    """The lines of statements that call one of `RESHAPING`, and have no comment with a shape."""
    lines, found = source.splitlines(), []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt) or hasattr(node, "body"):
            continue
        calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
        own = lines[node.lineno - 1 : node.end_lineno]
        if RESHAPING & {getattr(call, "attr", None) for call in calls}:
            if not any(re.search(r"# .*\[", line) for line in own):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_reshaping_says_the_shape(path):
    assert not silent(path.read_text(encoding="utf-8"))
