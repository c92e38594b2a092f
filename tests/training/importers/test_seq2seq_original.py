"""The current originals write T5, BART and Pegasus again; the results are compared.

The environment: `TFFORMER_HUGGING_FACE_PYTHON`, or one installed here from the package registry.
"""

import originals
import pytest
import seq2seq
import test_seq2seq as stored
from paths import SUPPORT

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_results_match_the_current_original_library(
    family, tmp_path, tmp_path_factory, monkeypatch
):
    python = originals.python_of("HUGGING_FACE", tmp_path_factory)
    originals.written_by(python, SUPPORT / f"{family}_original.py", tmp_path / "data" / family)
    monkeypatch.setattr(seq2seq.STORED, "root", tmp_path / "data")
    for name in seq2seq.FOLDERS:
        if name.startswith(f"{family}/"):
            both = stored.Both(name, tmp_path / name)
            stored.test_token_ids_match_the_original(both)
            stored.test_logits_match_the_original(both)
            stored.test_greedy_search_finds_the_same_texts(both)
