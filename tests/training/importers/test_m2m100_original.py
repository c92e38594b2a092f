"""The original writes the stored folders again, perhaps in another version; the results are
compared.

The environment: `TFFORMER_HUGGING_FACE_PYTHON`, or one installed here from the package registry.
"""

import m2m100
import originals
import pytest
from paths import SUPPORT

import tfformer
from training import import_hf

pytestmark = pytest.mark.nightly


def test_results_match_the_current_original_library(tmp_path, tmp_path_factory, monkeypatch):
    python = originals.python_of("HUGGING_FACE", tmp_path_factory)
    originals.written_by(python, SUPPORT / "m2m100_original.py", tmp_path / "m2m100")
    monkeypatch.setattr(m2m100.STORED, "root", tmp_path / "m2m100")
    for name in m2m100.FOLDERS:
        assert import_hf.main(m2m100.arguments(name, tmp_path / name)) == 0
        translator, answers = tfformer.load_translator(tmp_path / name), m2m100.answers(name)
        texts = [text for text in answers["sources"][:-2] if text]
        pair = m2m100.PAIRS[name][0]
        both = zip(answers["sources"][:-2], answers[pair]["greedy"], strict=False)
        expected = [best for text, best in both if text]
        found = translator.translate(texts, greedy=True, **m2m100.languages(name, pair))
        assert [text.strip() for text in found] == expected
