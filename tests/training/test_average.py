"""The average of runs is the mean of their weights, if they are alike; nothing is half written."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny

import tfformer
from tfformer import Tokenizer, run
from training import average

TEXTS = tiny.sentences(97)
SEARCH = {"max_source_length": 17, "max_target_length": 11}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs of one model and vocabulary, with different weights."""
    base = tmp_path_factory.mktemp("runs")
    first = tiny.save_small_run(base / "0")
    model, tokenizer = tfformer.load(first)
    own, rng = run.model_weights(model), np.random.default_rng(7)
    kept = {"examples": TEXTS[:3], "references": TEXTS[3:6], "epoch": 5}
    run.save(first, model, tokenizer, SEARCH, kept)
    for name in ("1", "2"):
        weights = {
            key: (array + rng.normal(size=array.shape) / 7).astype(array.dtype)
            for key, array in own.items()
        }
        run.save(base / name, model, tokenizer, {"beam_width": 2}, weights=weights)
    return [base / name for name in "012"]


def weights_of(directory):
    return run.unpack((directory / run.read_config(directory)["weights"]).read_bytes())


def command(runs, out):
    return average.main([*map(str, runs), "--out", str(out)])


def test_average_is_a_run_with_the_mean_weights(runs, tmp_path, capsys):
    assert command(runs, tmp_path / "new" / "mean") == 0
    assert capsys.readouterr().out == f"{tmp_path}/new/mean: the mean of 3 runs\n"
    each, found = [weights_of(one) for one in runs], weights_of(tmp_path / "new" / "mean")
    assert set(found) == set(each[0])
    for name, array in found.items():
        expected = np.mean([one[name] for one in each], axis=0, dtype="float64")
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-7)
        assert array.dtype == "float32"
        assert all((array != one[name]).all() for one in each)
    config = run.read_config(tmp_path / "new" / "mean")
    assert config["search"] == SEARCH
    assert config["training"]["examples"] == TEXTS[:3] and "epoch" not in config["training"]
    assert config["training"]["references"] == TEXTS[3:6]
    names = [[str(one), run.read_config(one)["weights"]] for one in runs]
    assert config["training"]["average_of"] == names
    assert len(tfformer.load_translator(tmp_path / "new" / "mean").translate(TEXTS[:2])) == 2


def test_a_run_that_is_named_twice_counts_twice(runs, tmp_path):
    assert command([runs[0], runs[0], runs[2]], tmp_path / "mean") == 0
    one, other = weights_of(runs[0]), weights_of(runs[2])
    for name, array in weights_of(tmp_path / "mean").items():
        np.testing.assert_allclose(array, (2 * one[name] + other[name]) / 3, rtol=1e-5, atol=1e-6)
    made_of = run.read_config(tmp_path / "mean")["training"]["average_of"]
    assert [Path(name).name for name, _ in made_of] == ["0", "0", "2"]


def changed(directory, folder, edit):
    """A copy of a run with an edited configuration."""
    copy = shutil.copytree(directory, folder)
    config = json.loads((copy / "config.json").read_text())
    edit(config)
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    "edit",
    [
        lambda model: model.update(dropout=0.5),
        lambda model: model.pop("num_key_value_heads"),
    ],
)
def test_different_dropout_or_missing_older_field_is_accepted(runs, tmp_path, edit):
    other = changed(runs[0], tmp_path / "other", lambda config: edit(config["model"]))
    assert command([other, runs[1]], tmp_path / "mean") == 0


def test_runs_that_cannot_be_averaged_are_refused_in_one_line(runs, tmp_path, capsys):
    wider = changed(runs[1], tmp_path / "wider", lambda c: c["model"].update(num_heads=1))
    family = changed(runs[1], tmp_path / "family", lambda c: c.update(family="recurrent"))
    words = tiny.save_run(
        tmp_path / "words", lambda: Tokenizer.train(TEXTS[:50], vocabulary_size=347), SEARCH
    )
    damaged = shutil.copytree(runs[1], tmp_path / "damaged")
    (damaged / run.read_config(damaged)["weights"]).write_bytes(b"no weights")
    heads = run.read_config(runs[0])["model"]["num_heads"]
    there = {path.name for path in tmp_path.iterdir()}
    for others, code, message in (
        ([], 2, "RUN must be given at least twice, got 1"),
        ([wider], 1, f"must have the same model as {runs[0]}, num_heads={heads}, got 1"),
        ([family], 1, "must be a run of the family 'encoder-decoder', got 'recurrent'"),
        ([words], 1, f"must have the same vocabulary as {runs[0]}, got another"),
        ([damaged], 1, "is damaged or belongs to another run"),
        ([tmp_path / "nowhere"], 1, "nowhere is no directory"),
    ):
        assert command([runs[0], *others], tmp_path / "mean") == code
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
        assert {path.name for path in tmp_path.iterdir()} == there
    before = (runs[1] / "config.json").read_bytes()
    assert command([runs[0], runs[2]], runs[1]) == 1
    assert f"--out must not exist yet, got {runs[1]}" in capsys.readouterr().err
    assert (runs[1] / "config.json").read_bytes() == before


def test_a_full_disk_leaves_nothing(runs, tmp_path, monkeypatch, capsys):
    def full(path, value):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(run, "write_json", full)
    assert command(runs[:2], tmp_path / "mean") == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
