"""A stopped training resumes exactly: after signals, divergence, or a full disk."""

import dataclasses
import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from workers import RECIPE, fails, last_state, start

from tfformer.files import read_json
from tfformer.run import load_model, model_weights, read_config
from training import train
from training.preparation.prepare import read_settings
from training.recipe import load_recipe
from training.trainer import fit
from training.trainer.lock import alone
from training.trainer.state import Keeper


def assert_as_uninterrupted(run, finished):
    arrays, progress = last_state(run)
    expected_arrays, expected_progress = last_state(finished)
    assert progress == expected_progress
    assert arrays.keys() == expected_arrays.keys()
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, expected_arrays[name], err_msg=name)
    ours, theirs = model_weights(load_model(run)), model_weights(load_model(finished))
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@pytest.mark.slow
def test_resumed_equals_uninterrupted_after_kills(finished, tmp_path):
    run = tmp_path / "run"
    # The middle of the second epoch, with R-Drop.
    for moment in ("during validation", "end of an epoch", "middle of an epoch"):
        killed = start(run, "--resume", die=moment)
        assert killed.returncode == -signal.SIGKILL, f"{moment}: {killed.stderr}"
    done = start(run, "--resume")
    assert done.returncode == 0, done.stderr
    assert_as_uninterrupted(run, finished)


@pytest.mark.slow
def test_resume_loses_nothing_after_kill_signal_and_full_disk(finished, tmp_path):
    run = tmp_path / "run"
    killed = start(run, "--resume", die="during a save")
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    stopped = start(run, "--resume", die="terminated at the last batch")
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    assert "--resume" in stopped.stderr and "Traceback" not in stopped.stderr
    before = last_state(run)[0]
    size = (run / "checkpoints" / "last.npz").stat().st_size

    full = start(run, "--resume", limit=size // 2)
    assert full.returncode == 1
    assert full.stderr.strip().splitlines()[-1].startswith("python -m training.train: error: ")
    assert "Traceback" not in full.stderr
    for name, value in last_state(run)[0].items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    assert not list(run.rglob("*.partial"))

    assert start(run, "--resume").returncode == 0
    assert_as_uninterrupted(run, finished)


@pytest.mark.slow
def test_nan_stops_training_and_keeps_the_last_good_checkpoint(tmp_path):
    run = tmp_path / "run"
    stopped = start(run, cores=1, die="nan")
    assert stopped.returncode == 3, stopped.stderr
    assert "diverged" in stopped.stderr and "step 13" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    arrays, progress = last_state(run)
    assert progress["batch"] == 10
    assert all(np.isfinite(value).all() for value in arrays.values())


@pytest.mark.nightly
def test_r_drop_and_sampling_are_off_before_their_start_epochs(finished, tmp_path):
    """The recipe's three epochs: only the first is without R-Drop."""
    never = ("--r-drop-from=2", "--subword-sampling=0.5", "--subword-sampling-from=2")
    for name, options in (("never", never), ("none", ("--r-drop=0",))):
        done = start(tmp_path / name, "--epochs", "2", *options)
        assert done.returncode == 0, done.stderr
    (never, progress), (none, _) = (last_state(tmp_path / name) for name in ("never", "none"))
    for name, value in none.items():
        np.testing.assert_array_equal(never[name], value, err_msg=name)
    first, second, _ = last_state(finished)[1]["history"]
    assert progress["history"][0] == first
    assert progress["history"][1]["loss"] != second["loss"]


@pytest.mark.slow
def test_a_resume_that_is_refused_changes_no_setting(begun, capsys):
    settings = (begun / "prepared" / "recipe.json").read_bytes()
    resume = [RECIPE, "--run", str(begun), "--resume", "--epochs", "4"]
    assert "--dtype" in fails([*resume, "--dtype", "mixed_float16"], capsys, 1)
    with alone(begun):
        assert "in training already" in fails(resume, capsys, 1)
    assert (begun / "prepared" / "recipe.json").read_bytes() == settings


@pytest.mark.slow
def test_shortened_run_is_validated_and_lengthened_run_resumes(tmp_path, capsys, monkeypatch):
    run = [RECIPE, "--run", str(tmp_path / "run"), "--validate-every", "3"]

    def finish_and_stop(training, row, original=fit.Training._finish_epoch):
        original(training, row)
        training.signals.number = signal.SIGTERM

    with monkeypatch.context() as patch:
        patch.setattr(fit.Training, "_finish_epoch", finish_and_stop)
        assert train.main(run) == 128 + signal.SIGTERM
    assert not (tmp_path / "run" / "config.json").exists()
    for epochs in (1, 2):
        assert train.main([*run, "--resume", "--epochs", str(epochs)]) == 0
        assert "best model" in capsys.readouterr().err
        assert (tmp_path / "run" / "config.json").exists()
        _, progress = last_state(tmp_path / "run")
        assert progress["epoch"] == len(progress["history"]) == epochs
        assert "val_bleu" in progress["history"][-1]
        settings = json.loads((tmp_path / "run" / "prepared" / "recipe.json").read_bytes())
        assert (settings["epochs"], settings["validate_every"]) == (epochs, 3)


@pytest.mark.slow
def test_epochs_below_the_current_epoch_are_refused_on_resume(tmp_path, capsys, monkeypatch):
    run = [RECIPE, "--run", str(tmp_path / "run")]

    def stop(keeper, batch, logs=None, original=Keeper.on_train_batch_end):
        if keeper.state.progress["epoch"] == 1:
            keeper.signals.number = signal.SIGTERM
        original(keeper, batch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "on_train_batch_end", stop)
        assert train.main(run) == 128 + signal.SIGTERM
    settings = (tmp_path / "run" / "prepared" / "recipe.json").read_bytes()
    capsys.readouterr()
    assert "at least 2, the epoch that the run is in" in fails(
        [*run, "--resume", "--epochs", "1"], capsys, 1
    )
    assert (tmp_path / "run" / "prepared" / "recipe.json").read_bytes() == settings


@pytest.mark.slow
def test_resume_with_another_corpus_is_refused(begun, files, capsys):
    resume = ["--run", str(begun), "--resume"]
    assert "begun with the recipe `killing_recipe.py`" in fails(["dates", *resume], capsys, 2)
    assert "cannot continue with `source.txt`" in fails([*files()[:4], *resume], capsys, 2)
    assert train.main(resume) == 0


@pytest.mark.slow
def test_damaged_epoch_file_is_refused_and_foreign_file_is_kept(begun, capsys):
    path = begun / "checkpoints" / "epoch-3.npz"
    kept = shutil.copy(path, begun / "checkpoints/epoch-best.npz")
    path.write_bytes(path.read_bytes()[:-100])
    longer = ["--run", str(begun), "--resume", "--epochs", "4"]
    assert "epoch-3.npz is damaged" in fails(longer, capsys, 1)
    names = {file.name for file in path.parent.glob("epoch-*")}
    assert names == {"epoch-3.npz", "epoch-4.npz", Path(kept).name}


def test_resume_without_a_training_is_refused(capsys, tmp_path):
    assert "--source" in fails(["--run", str(tmp_path), "--resume"], capsys, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkpoints/last.npz", "config.json"])
def test_missing_file_of_a_run_is_refused_without_restarting(begun, capsys, name):
    (begun / name).unlink()
    log = (begun / "log.csv").read_bytes()
    error = fails([RECIPE, "--run", str(begun), "--resume"], capsys, 1)
    assert f"{begun / name} is missing" in error
    assert (begun / "log.csv").read_bytes() == log and not (begun / name).exists()


@pytest.mark.slow
def test_damaged_settings_exit_with_code_1(begun, capsys):
    (begun / "prepared" / "recipe.json").write_bytes(b"{")
    assert "recipe.json" in fails([RECIPE, "--run", str(begun), "--resume"], capsys, 1)


@pytest.mark.slow
def test_settings_missing_in_an_older_run_get_old_defaults(begun):
    path = begun / "prepared" / "recipe.json"
    settings = read_json(path)
    assert settings.pop("cores") == 2 and settings.pop("weight_decay") == 0
    path.write_text(json.dumps(settings))
    now = dataclasses.replace(load_recipe(RECIPE), weight_decay=0.3, cores=7, epochs=9)
    then = read_settings(begun, now)
    assert (then.weight_decay, then.cores, then.epochs) == (0, 1, settings["epochs"])


@pytest.mark.slow
def test_resume_of_a_finished_run_changes_the_search_options(begun):
    before = read_config(begun)
    assert train.main(["--run", str(begun), "--resume", "--beam-width", "7"]) == 0
    assert read_config(begun) == before | {"search": before["search"] | {"beam_width": 7}}


@pytest.mark.slow
def test_prepared_settings_cannot_change_on_resume(finished, capsys):
    resume = [RECIPE, "--run", str(finished), "--resume"]
    assert "--seed was 0" in fails([*resume, "--seed", "1"], capsys, 2)

    assert "--optimizer was 'adam'" in fails([*resume, "--optimizer", "muon"], capsys, 2)
