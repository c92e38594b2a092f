"""A signature has no more operations than it had: what a search does at each step costs by them."""

import json

import op_counts
import pytest
from paths import DATA

STORED = json.loads((DATA / "op-counts.json").read_text())


def test_all_that_is_exported_is_stored():
    assert {op_counts.SERVED, *op_counts.CHANGES} == set(STORED)


def assert_no_more(export, directory):
    counts = op_counts.op_counts(directory)
    assert set(counts) == set(STORED[export])
    grown = {name: n for name, n in counts.items() if n > STORED[export][name]}
    assert not grown, f"more than {STORED[export]}"


def test_no_signature_has_more_operations_than_it_had(served_model):
    assert_no_more(op_counts.SERVED, served_model / "1")


# Other layers, several of them, and all else alike.
@pytest.mark.slow
@pytest.mark.parametrize("export", op_counts.CHANGES)
def test_nor_has_one_of_other_layers(export, tmp_path):
    assert_no_more(export, op_counts.write(export, tmp_path / "1"))
