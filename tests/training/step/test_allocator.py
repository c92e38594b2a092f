"""Freed memory stays in the process, and huge pages are requested unless the user disabled them."""

import os
import subprocess
import sys

import pytest
from paths import ROOT

BEGUN = """
import os, sys
from training.step.allocator import take_huge_pages

print("begun", flush=True)
take_huge_pages("a.program")
print(os.environ.get("GLIBC_TUNABLES"), sys.argv[1:])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator alone is asked")
@pytest.mark.parametrize(
    ("name", "given", "begun", "left"),
    [
        ("a.program", {}, 2, "glibc.malloc.hugetlb=1"),
        ("a.program", {"GLIBC_TUNABLES": "glibc.malloc.perturb=0"}, 1, "glibc.malloc.perturb=0"),
        ("another", {}, 1, None),
    ],
)
def test_program_restarts_with_huge_pages_unless_the_user_set_tunables(name, given, begun, left):
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", BEGUN, name, "a b", "--c"], env={**environment, **given},
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    *lines, last = done.stdout.splitlines()
    assert lines == ["begun"] * begun
    assert last == f"{left} {[name, 'a b', '--c']}"
