"""--batch-tokens auto: the largest batch that fits on a GPU; and a device without memory for a
step."""

import json

import numpy as np
import pytest
import tensorflow as tf
from workers import RECIPE, last_state

from training import train
from training.step import largest_batch
from training.trainer import fit, setup


def out_of_memory():
    return tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")


def held(room, tried):
    """A step on a device with memory for so many tokens."""

    def step(tokens):
        tried.append(tokens)
        if tokens > room:
            raise out_of_memory()

    return step


@pytest.mark.parametrize("room", [17, 18, 101, 1009, 65_537, 99_991])
def test_the_largest_batch_is_found_to_an_eighth_in_few_steps(room):
    tried = []
    found = largest_batch.largest_batch_tokens(held(room, tried), 17, 1_000_003)
    assert found <= room < found + max(2, found // 8 + 1)
    assert found in tried and len(tried) == len(set(tried)) < 22


@pytest.mark.parametrize("maximum", [17, 23, 1009])
def test_largest_batch_does_not_exceed_the_maximum(maximum):
    tried = []
    found = largest_batch.largest_batch_tokens(held(10**9, tried), 17, maximum)
    assert max(tried) <= maximum and found >= maximum - maximum // 8 - 1


def test_memory_error_is_raised_when_the_minimum_does_not_fit():
    with pytest.raises(MemoryError, match="too small for a training step of 17 tokens"):
        largest_batch.largest_batch_tokens(held(13, []), 17, 1009)


def test_other_errors_are_not_treated_as_out_of_memory():
    def step(tokens):
        raise tf.errors.InvalidArgumentError(None, None, "another")

    with pytest.raises(tf.errors.InvalidArgumentError):
        largest_batch.largest_batch_tokens(step, 17, 1009)


@pytest.fixture
def small_gpu(monkeypatch):
    """A simulated GPU with memory for 200 tokens; returns the batches that were tried."""
    tried = []

    def training_step(model, task, edge, passes=1):
        real = largest_batch.training_step(model, task, edge, passes)

        def step(tokens):
            tried.append((tokens, edge, passes))
            if tokens > 200:
                raise out_of_memory()
            real(tokens)

        return step

    monkeypatch.setattr(setup, "has_gpu", lambda: True)
    monkeypatch.setattr(fit, "training_step", training_step)
    monkeypatch.setattr(fit, "MIN_STEPS", 1)
    return tried


@pytest.mark.slow
def test_auto_batch_is_found_once_and_trains_like_a_number(small_gpu, tmp_path, capsys):
    command = [RECIPE, "--epochs", "1", "--r-drop-from", "0"]
    run, given = tmp_path / "run", tmp_path / "given"
    assert train.main([*command, "--run", str(run), "--batch-tokens", "auto"]) == 0
    settings = json.loads((run / "prepared" / "recipe.json").read_text())
    found = settings["batch_tokens"]
    assert 200 * 8 / 9 - 2 < found <= 200
    # With R-Drop, and with the longest pairs.
    assert {(edge, passes) for _, edge, passes in small_gpu} == {(12, 2)}
    assert train.main([*command, "--run", str(given), "--batch-tokens", str(found)]) == 0
    (ours, _), (theirs, _) = last_state(run), last_state(given)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    # A resumed run uses the number that was found.
    tries = len(small_gpu)
    again = [*command, "--run", str(run), "--resume", "--batch-tokens", "auto"]
    assert train.main(again) == 0
    assert len(small_gpu) == tries
    assert json.loads((run / "prepared" / "recipe.json").read_text()) == settings
    capsys.readouterr()


@pytest.mark.slow
def test_auto_batch_leaves_a_minimum_of_steps_per_epoch(small_gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "MIN_STEPS", 20)
    run = tmp_path / "run"
    command = [RECIPE, "--run", str(run), "--epochs", "1", "--batch-tokens", "auto"]
    assert train.main(command) == 0
    settings = json.loads((run / "prepared" / "recipe.json").read_text())
    assert 16 <= settings["batch_tokens"] < 200
    assert last_state(run)[1]["history"][0]["step"] >= 20


@pytest.mark.slow
def test_after_auto_fails_a_given_batch_size_is_accepted(small_gpu, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    command = [RECIPE, "--run", str(run), "--epochs", "1"]

    def too_small(model, task, edge, passes=1):
        def step(tokens):
            raise out_of_memory()

        return step

    with monkeypatch.context() as patch:
        patch.setattr(fit, "training_step", too_small)
        assert train.main([*command, "--batch-tokens", "auto"]) == 1
    assert (
        "too small for a training step of 16 tokens"
        in capsys.readouterr().err.strip().splitlines()[-1]
    )
    assert train.main([*command, "--resume", "--batch-tokens", "128", "--accumulate", "2"]) == 0
    again = [*command, "--resume", "--batch-tokens", "auto", "--accumulate", "3"]
    assert train.main(again) == 0


def test_without_a_gpu_auto_is_refused_in_one_line(tmp_path, capsys):
    run = tmp_path / "run"
    assert train.main([RECIPE, "--run", str(run), "--batch-tokens", "auto"]) == 1
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0 and "batch_tokens=auto" in error and "GPU" in error
    assert not (run / "prepared").exists()


@pytest.mark.parametrize(
    "options", [["--accumulate", "2"], ["--cores", "2"], ["--strategy", "mirrored"]]
)
def test_auto_is_refused_with_several_parts_or_devices(options, tmp_path, capsys):
    command = [RECIPE, "--run", str(tmp_path / "run"), "--batch-tokens", "auto", *options]
    assert train.main(command) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0 and "batch_tokens must be a number" in error


@pytest.mark.slow
def test_after_out_of_memory_the_run_resumes_in_parts(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    command = [RECIPE, "--run", str(run), "--epochs", "1", "--checkpoint-steps", "2"]
    row = fit.EpochProgress.row

    def full(bar):
        if bar.done >= 5:
            raise out_of_memory()
        return row(bar)

    monkeypatch.setattr(fit.EpochProgress, "row", full)
    assert train.main(command) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "OOM when allocating" in error and "--accumulate" in error
    monkeypatch.undo()
    assert train.main([*command, "--resume", "--accumulate", "2"]) == 0
    assert last_state(run)[1]["epoch"] == 1
