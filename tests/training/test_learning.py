"""The whole learns: a model trained by the command reads dates that it has not seen."""

import json

import pytest

from training import evaluate, train


@pytest.mark.slow
def test_dates_are_learned(tmp_path):
    run = str(tmp_path / "run")
    # Validated at the end alone, which does not change what is learned.
    assert train.main(["dates", "--run", run, "--validate-every", "5"]) == 0
    assert evaluate.main([run, "--recipe", "dates"]) == 0
    scores = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert scores["exact_match"] >= 99
    assert len(scores["groups"]) >= 12
    assert min(group["exact_match"] for group in scores["groups"].values()) >= 95
