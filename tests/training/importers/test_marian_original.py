"""The original writes the stored folders again, perhaps in another version; the results are
compared.

The environment: `TFFORMER_HUGGING_FACE_PYTHON`, or one installed here from the package registry.
"""

import marian
import numpy as np
import originals
import pytest
from paths import SUPPORT

import tfformer
from tfformer.config import BOS
from training import import_marian

pytestmark = pytest.mark.nightly


def test_results_match_the_current_original_library(tmp_path, tmp_path_factory, monkeypatch):
    python = originals.python_of("HUGGING_FACE", tmp_path_factory)
    originals.written_by(python, SUPPORT / "marian_original.py", tmp_path / "marian")
    monkeypatch.setattr(marian.STORED, "root", tmp_path / "marian")
    for name in marian.FOLDERS:
        assert import_marian.main([str(marian.folder(name)), str(tmp_path / name)]) == 0
        translator, answers = tfformer.load_translator(tmp_path / name), marian.answers(name)
        texts = [text for text in answers["sources"] if text]
        pairs = zip(answers["sources"], answers["greedy"], strict=True)
        expected = [best for text, best in pairs if text]
        found = translator.translate(texts, greedy=True)
        assert [text.strip() for text in found] == expected
        sides = {
            side: marian.our_ids(name, side, translator.tokenizer) for side in ("source", "target")
        }
        shown = {n: own for n, own in sides["target"].items() if own != BOS or name != "joint"}
        theirs, ours = list(shown), list(shown.values())
        known = zip(answers["source_ids"], answers["target_ids"], marian.logits(name), strict=False)
        for source, target, logits in known:
            source, target = (
                [sides[side][n] for n in ids]
                for side, ids in (("source", source), ("target", target))
            )
            inputs = {"source_ids": [source], "target_ids": [[BOS, *target[:-1]]]}
            found = translator.model({key: np.array(ids) for key, ids in inputs.items()})[0]
            np.testing.assert_allclose(found.numpy()[:, ours], logits[:, theirs], atol=1e-4)
