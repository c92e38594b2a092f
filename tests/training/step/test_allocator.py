"""Freed memory stays with the process, and huge pages are asked for where the user did not."""

import os
import subprocess
import sys

import pytest
from paths import ROOT

PROGRAM = """
import resource, sys
import numpy as np
from training.step.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(3):
    np.ones(2**23)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    np.ones(2**23)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator alone is asked")
def test_a_freed_block_costs_nothing_when_it_is_taken_again():
    faults = {}
    for how in ("keep", "leave"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, how],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        faults[how] = int(done.stdout)
    # Ten blocks of 64 MiB, whose pages are of 4 KiB, or of 2 MiB where the system has such.
    assert faults["leave"] >= 10 * 32
    assert faults["keep"] < faults["leave"] / 10


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
def test_a_program_begins_again_with_huge_pages_unless_the_user_has_set_something(
    name, given, begun, left
):
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", BEGUN, name, "a b", "--c"], env={**environment, **given},
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    *lines, last = done.stdout.splitlines()
    assert lines == ["begun"] * begun
    assert last == f"{left} {[name, 'a b', '--c']}"
