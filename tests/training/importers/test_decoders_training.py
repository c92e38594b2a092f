"""An imported language model is a run like any other: fine-tuned, exported, converted."""

import random

import decoders
import numpy as np
import pytest
from tiers import slow_or_nightly

from export import ctranslate2 as to_ctranslate2
from export import saved_model
from tfformer import run
from tfformer.config import BOS, PAD, UNK
from training import evaluate, import_hf, train
from training.report.history import read_history

WORDS = "the red house is by old tree small and quiet See Baum Straße".split()
FAST = ["--learning-rate-scale", "0.2", "--warmup-steps", "9", "--batch-tokens", "2000"]


@pytest.fixture
def texts(tmp_path):
    """Texts of few words, some with chat tokens."""
    rng, path = random.Random(3), tmp_path / "texts.txt"
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 11))) for _ in range(120)]
    path.write_text("".join(f"<|im_start|>{line}<|im_end|>\n" for line in lines))
    return path


@pytest.mark.parametrize(
    "name", slow_or_nightly(["gpt2", "llama", "qwen2", "wide", "llama2"], ["llama"])
)
def test_it_is_fine_tuned_and_exported(name, texts, tmp_path):
    begun, made = tmp_path / "begun", tmp_path / "made"
    assert import_hf.main([str(decoders.folder(name)), str(begun)]) == 0
    command = ["--family", "language-model", "--text", str(texts), "--init", str(begun)]
    command += ["--epochs", "4", "--max-tokens", "60", "--run", str(made), *FAST]
    assert train.main(command) == 0
    found = [row["loss"] for row in read_history(made)]
    assert found[-1] < found[0] - 0.1
    weights = run.model_weights(run.load_model(made))
    bias = weights["output_projection/bias"]
    assert np.all(bias[[PAD, UNK, BOS]] < -9000)  # still impossible
    assert not np.array_equal(bias, run.model_weights(run.load_model(begun))[
        "output_projection/bias"])  # fmt: skip
    assert evaluate.main([str(made), "--text", str(texts)]) == 0
    assert saved_model.main([str(made), str(tmp_path / "exported"), "--quick"]) == 0
    assert len(run.load_service(made).generate(["the red"], top_k=1)) == 1


def test_ctranslate2_conversion_of_a_language_model_is_refused(tmp_path, capsys):
    assert import_hf.main([str(decoders.folder("gpt2")), str(tmp_path / "run")]) == 0
    assert to_ctranslate2.main([str(tmp_path / "run"), str(tmp_path / "made")]) != 0
    assert "language-model" in capsys.readouterr().err.splitlines()[-1]
