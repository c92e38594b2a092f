"""A signature has no more operations than it had: what a search does at each step costs by them."""

import json

import op_counts
import pytest
from paths import DATA

STORED = json.loads((DATA / "op-counts.json").read_text())


def test_all_that_is_exported_is_stored():
    assert set(op_counts.CHANGES) == set(STORED)


FIRST, *OTHERS = STORED


# The others have other layers, and all else alike.
@pytest.mark.parametrize(
    "export", [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_no_signature_has_more_operations_than_it_had(export, tmp_path):
    counts = op_counts.op_counts(op_counts.write(export, tmp_path / "1"))
    assert set(counts) == set(STORED[export])
    grown = {name: n for name, n in counts.items() if n > STORED[export][name]}
    assert not grown, f"more than {STORED[export]}"
