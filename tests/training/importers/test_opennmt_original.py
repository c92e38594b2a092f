"""The current original writes the stored models of OpenNMT-tf again; the results are compared.

The environment: `TFFORMER_OPENNMT_PYTHON`, or one of Python 3.10, its last one, installed here.
"""

import opennmt_folders as opennmt
import originals
import pytest
import test_opennmt as stored
from paths import SUPPORT

pytestmark = pytest.mark.nightly


def test_results_match_the_current_original_library(tmp_path, tmp_path_factory, monkeypatch):
    python = originals.python_of("OPENNMT", tmp_path_factory)
    program, folder = SUPPORT / "opennmt_original.py", tmp_path / "opennmt"
    originals.written_by(python, program, folder, "--steps", "500")
    monkeypatch.setattr(opennmt, "DATA", tmp_path)
    for name in opennmt.FOLDERS:
        both = stored.Both(name, tmp_path / name)
        stored.test_token_ids_match_the_original(both)
        stored.test_logits_match_the_original(both)
        stored.test_texts_and_scores_match_the_original(both, "greedy")
