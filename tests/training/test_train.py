"""The command training.train: the content of a run, and the reasons to refuse one."""

import dataclasses
import shutil

import pytest
from workers import RECIPE, fails, last_state

import tfformer
from tfformer.run import read_config
from training import train
from training.data.batches import Batches
from training.data.corpus import Corpus
from training.recipe import load_recipe
from training.step import machine
from training.tasks import TASKS
from training.trainer import fit


@pytest.mark.slow
def test_finished_run_has_log_curve_config_and_model(finished):
    history = (finished / "log.csv").read_text().splitlines()
    assert len(history) == 1 + 3
    assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((finished / "tensorboard").glob("events*"))
    config = read_config(finished)
    assert config["search"]["max_source_length"] == 16
    model, tokenizer = tfformer.load(finished)
    assert tfformer.Translator(model, tokenizer, max_target_length=16).translate(["abc"])


@pytest.mark.slow
def test_logged_steps_equal_the_number_of_batches(finished):
    prepared = finished / "prepared"
    batches = Batches(TASKS["translation"], Corpus(prepared / "train"), None, batch_tokens=128)
    _, progress = last_state(finished)
    assert [row["step"] for row in progress["history"]] == [n * len(batches) for n in (1, 2, 3)]


@pytest.mark.parametrize(("fast", "policy"), [(True, "mixed_bfloat16"), (False, "float32")])
def test_dtype_auto_is_bfloat16_only_on_fast_machines(tmp_path, capsys, monkeypatch, fast, policy):
    monkeypatch.setattr(machine, "has_bfloat16", lambda: fast)
    recipe = dataclasses.replace(load_recipe(RECIPE), dtype="auto", optimizer="muon")
    trained = fit.Training(tmp_path / "run", recipe).model
    assert f"dtype: {policy}\n" in capsys.readouterr().err
    assert trained.dtype_policy.name == policy
    assert trained.optimizer.compute_dtype == trained.compute_dtype


@pytest.mark.slow
def test_a_model_without_its_training_is_not_overwritten(begun, capsys):
    shutil.rmtree(begun / "prepared")
    before = (begun / "config.json").read_bytes()
    for options in ([], ["--resume"], ["--init", str(begun)]):
        said = fails([RECIPE, "--run", str(begun), *options], capsys, 1)
        assert "has a model but no folder prepared" in said
    assert (begun / "config.json").read_bytes() == before
    (begun / "config.json").unlink()
    assert "its training cannot go on" in fails([RECIPE, "--run", str(begun)], capsys, 1)


def test_validation_takes_batches_no_larger_than_a_part(tmp_path):
    perplexities = []
    for parts in (1, 4):
        recipe = dataclasses.replace(load_recipe(RECIPE), accumulate=parts)
        training = fit.Training(tmp_path / "run", recipe)
        batches = training.setup.validation.batches
        shapes = [batches.shape(bucket) for bucket in batches.buckets]
        assert all(rows * edge <= 128 // parts for rows, edge in shapes)
        data = batches.dataset()
        scores = training.model.evaluate(data, verbose=0, return_dict=True)
        perplexities.append(scores["perplexity"])
    assert perplexities[0] == pytest.approx(perplexities[1], rel=1e-5)


@pytest.mark.slow
def test_a_begun_run_is_not_overwritten(finished, capsys):
    before = (finished / "config.json").read_bytes()
    assert "--resume" in fails([RECIPE, "--run", str(finished)], capsys, 2)
    assert (finished / "config.json").read_bytes() == before


def test_error_suggests_the_option_for_a_mistyped_one(capsys):
    with pytest.raises(SystemExit):
        train.main(["dates", "--run", "run", "--epoch", "3"])
    assert "--epoch 3: did you mean --epochs?" in capsys.readouterr().err
