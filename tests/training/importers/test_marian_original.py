"""The stored folders, written anew by the original and asked again: its version may be another.

The environment: `TFFORMER_MARIAN_PYTHON`, or one that is made here of the package registry.
"""

import os
import subprocess
import sys

import marian
import numpy as np
import pytest
from paths import SUPPORT

import tfformer
from tfformer.config import BOS
from training import import_marian

pytestmark = pytest.mark.slow
PACKAGES = [
    "torch==2.13.0", "transformers==5.24.0", "sentencepiece==0.2.3", "sacremoses", "safetensors",
]  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment that has the original."""
    named = os.environ.get("TFFORMER_MARIAN_PYTHON")
    if named:
        return named
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    made = folder / "bin" / "python"
    done = subprocess.run(
        [made, "-m", "pip", "install", "--quiet", *PACKAGES], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"the original cannot be installed here: {done.stderr.strip()[-300:]}")
    return made


def test_the_original_of_today_says_what_the_run_says(python, tmp_path, monkeypatch):
    command = [python, SUPPORT / "marian_original.py", "write", tmp_path / "marian"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    monkeypatch.setattr(marian, "DATA", tmp_path)
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
