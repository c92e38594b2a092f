"""A signature has no more operations than it had: what a search does at each step costs by them."""

import json

import op_counts
from paths import DATA

STORED = json.loads((DATA / "op-counts.json").read_text())


def test_no_signature_has_more_operations_than_it_had(tmp_path):
    exported = dict(op_counts.exports(tmp_path))
    assert set(exported) == set(STORED)
    for export, directory in exported.items():
        counts = op_counts.op_counts(directory)
        assert set(counts) == set(STORED[export])
        grown = {name: n for name, n in counts.items() if n > STORED[export][name]}
        assert not grown, f"{export}: more than {STORED[export]}"
