"""The ablation changes one thing at a time, and averages use the weights that a run has kept."""

import dataclasses
import math

import numpy as np
import pytest
from killing_recipe import RECIPE
from paths import SUPPORT

import tfformer.run
from benchmarks import ablation, averages
from tfformer.files import read_arrays
from training.data.reader import Pair
from training.recipe import load_recipe
from training.report.history import read_history
from training.trainer.fit import Training

PATH = str(SUPPORT / "killing_recipe.py")
MULTI30K = load_recipe("multi30k")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three epochs that kept the weights of each."""
    directory = tmp_path_factory.mktemp("runs") / "half"
    Training(directory, dataclasses.replace(RECIPE, epochs=3, average=3, r_drop=0.0)).run()
    return directory


@pytest.mark.parametrize("row", ablation.FURTHER)
def test_each_row_changes_only_its_own_settings(row):
    init = {"model": {"d_model": 13}}
    # No row has this value.
    recipe = dataclasses.replace(MULTI30K, subword_sampling=0.3)
    same, other = (
        ablation.settings(recipe, changes, 7, init, 1e-3) for changes in ({}, ablation.FURTHER[row])
    )
    assert dataclasses.replace(recipe, **other)
    changed = {name for name in same if same[name] != other[name]}
    assert changed == set(ablation.FURTHER[row])
    for name, value in ablation.FURTHER[row].items():
        expected = MULTI30K.model_changes | value if name == "model_changes" else value
        assert other[name] == expected


def row_file(folder, translations=None, **changes):
    settings = ablation.settings(RECIPE, changes, 3)
    row = {"recipe": PATH, "settings": settings, "translations": translations}
    ablation.write_row(folder / "row.json", row)
    return folder / "row.py"


def test_row_keeps_its_settings_and_refuses_other_ones(tmp_path):
    path = row_file(tmp_path, max_length_ratio=math.inf)
    recipe = load_recipe(str(path))
    assert recipe.settings() == ablation.settings(RECIPE, {"max_length_ratio": math.inf}, 3)
    assert list(recipe.read("train", None)) == list(RECIPE.read("train", None))
    row_file(tmp_path, max_length_ratio=math.inf)
    with pytest.raises(ValueError, match="was begun with other settings: choose another --out"):
        row_file(tmp_path, smoothing=0.2)
    assert load_recipe(str(path)).settings() == recipe.settings()


def test_distilled_corpus_appends_the_sources_with_translated_targets(tmp_path):
    translations = tmp_path / "translations.txt"
    own = list(RECIPE.read("train", None))
    translations.write_text("".join(f"{n}\u2028\n" for n in range(len(own))), encoding="utf-8")
    recipe = load_recipe(str(row_file(tmp_path, str(translations))))
    pairs = list(recipe.read("train", None))
    assert pairs[: len(own)] == own
    assert pairs[len(own) :] == [Pair(pair.source, f"{n}\u2028") for n, pair in enumerate(own)]
    assert list(recipe.read("val", None)) == list(RECIPE.read("val", None))
    translations.write_text("one\n")
    with pytest.raises(ValueError, match="shorter"):
        list(recipe.read("train", None))


@pytest.mark.slow
def test_averages_command_prints_a_row_per_average(run, capsys):
    assert averages.main([str(run), "--recipe", PATH]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = dict(line.strip("| ").split(" | ", 1) for line in lines[2:])
    assert list(rows) == [
        "as published",
        "of the last epoch",
        "mean of the last 2",
        "exponential moving average of the last 3",
    ]
    assert len({row.split(" | ")[0] for name, row in rows.items() if name != "as published"}) == 3
    # The training printed the same perplexity for the last epoch.
    perplexity = float(rows["of the last epoch"].split(" | ")[0])
    np.testing.assert_allclose(perplexity, read_history(run)[-1]["val_perplexity"], rtol=1e-3)


@pytest.mark.slow
def test_exponential_moving_average(run, monkeypatch):
    """A quarter, a quarter and a half of three epochs."""
    given = []
    monkeypatch.setattr(tfformer.run, "set_weights", lambda model, weights: given.append(weights))
    monkeypatch.setattr(averages, "evaluate", lambda *args, **kwargs: ({}, []))
    list(averages.measure(run, [], ""))
    epochs = [read_arrays(run / "checkpoints" / f"epoch-{n}.npz") for n in (1, 2, 3)]
    *_, pair, moving = given
    for name, weight in moving.items():
        first, second, third = (weights[name] for weights in epochs)
        np.testing.assert_allclose(weight, first / 4 + second / 4 + third / 2, atol=1e-6)
        np.testing.assert_allclose(pair[name], (second + third) / 2, atol=1e-6)
