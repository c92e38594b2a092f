"""A model trained by the command reads dates that it has not seen."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tfformer import load_translator
from training import evaluate, train
from training.translate import mixture_of

# Other tests run on the second core, so two parts would be slower than the whole;
# step/test_parallel.py proves that they learn the same.
ONE_CORE = ["--cores", "1"]


@pytest.mark.slow
def test_dates_are_learned(tmp_path):
    run = str(tmp_path / "run")
    # Validated only at the end, which does not change what it learns.
    assert train.main(["dates", "--run", run, "--validate-every", "3", *ONE_CORE]) == 0
    assert evaluate.main([run, "--recipe", "dates"]) == 0
    scores = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert scores["exact_match"] >= 99
    assert len(scores["groups"]) >= 12
    assert min(group["exact_match"] for group in scores["groups"].values()) >= 95


@pytest.mark.nightly
def test_unseen_names_are_copied(tmp_path):
    """The recipe in fewer steps: two epochs of Muon instead of eight of Adam."""
    run = str(tmp_path / "run")
    few = ["--optimizer", "muon", "--weight-decay", "0.5", "--warmup-steps", "200", "--epochs", "2"]
    rest = ["--learning-rate-scale", "2", "--average", "1", "--validate-every", "2", *ONE_CORE]
    assert train.main(["names", "--run", run, *few, *rest]) == 0
    assert evaluate.main([run, "--recipe", "names", "--split", "val", "--greedy"]) == 0
    scores = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert scores["exact_match"] >= 90
    # Each piece of the name is copied, not generated.
    source, name, target = "Do you know Jorvik?", "Jorvik", "Yes, I met Jorvik last year."
    translator = load_translator(run)
    assert translator.translate([source], greedy=True) == [target]
    aligned = translator.functions["align"](tf.constant([source]), tf.constant([target]))
    pieces = [piece.decode() for piece in aligned["target_tokens"][0].numpy()]
    ends = np.cumsum([len(piece) for piece in pieces])
    first = "".join(pieces).index(name)
    inside = (ends > first) & (ends <= first + len(name))
    gate = mixture_of(translator, source, target).gate[0].numpy()
    assert inside.sum() > 1 and gate[inside].max() < 0.5
