"""The number of parts of a batch on a CPU: how it is chosen, kept by a run, and mapped to
threads."""

import dataclasses
import os
import signal
import subprocess
import sys

import pytest
from paths import ROOT, SUPPORT
from workers import RECIPE

from tfformer.files import read_json
from training import train
from training.recipe import AUTO, load_recipe
from training.step import cores, machine
from training.step.cores import MAXIMUM, MIN_TOKENS, cores_of
from training.trainer import fit
from training.trainer.signals import Interrupted


def recipe(**changes):
    return dataclasses.replace(load_recipe(RECIPE), **changes)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(cores, "has_gpu", lambda: False)


@pytest.mark.parametrize(
    ("available", "changes", "expected"),
    [
        (1, {"batch_tokens": 9 * MIN_TOKENS}, 1),
        (7, {"batch_tokens": 9 * MIN_TOKENS}, 7),
        (7, {"batch_tokens": 3 * MIN_TOKENS}, 3),
        (7, {"batch_tokens": MIN_TOKENS - 1}, 1),
        (7, {"batch_tokens": 9 * MIN_TOKENS, "accumulate": 3}, 3),
        (7, {"batch_tokens": 9 * MIN_TOKENS, "max_tokens": 2 * MIN_TOKENS}, 4),
        (3 * MAXIMUM, {"batch_tokens": 5 * MAXIMUM * MIN_TOKENS}, MAXIMUM),
        (7, {"batch_tokens": 9 * MIN_TOKENS, "strategy": "mirrored"}, 1),
        (7, {"strategy": "mirrored", "cores": 5}, 5),
        (7, {"strategy": "tpu", "cores": 5}, 1),
        (2, {"batch_tokens": MIN_TOKENS, "cores": 5}, 5),
    ],
)
def test_parts_equal_cores_if_each_has_enough_tokens(monkeypatch, available, changes, expected):
    monkeypatch.setattr(machine, "cores", lambda: available)
    assert cores_of(recipe(**changes)) == expected


def test_batch_is_not_split_on_a_gpu(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 7)
    assert cores_of(recipe(batch_tokens=AUTO)) == 1
    monkeypatch.setattr(cores, "has_gpu", lambda: True)
    assert cores_of(recipe(batch_tokens=9 * MIN_TOKENS)) == 1
    assert cores_of(recipe(cores=2)) == 1


def stop(training):
    """A training that a signal stops before its first step."""
    raise Interrupted(signal.SIGTERM)


@pytest.mark.parametrize(
    ("train_it", "code"),
    [
        (stop, 128 + signal.SIGTERM),
        pytest.param(fit.Training.run, 0, marks=pytest.mark.slow),
    ],
    ids=["prepared", "trained"],
)
def test_run_keeps_its_number_of_parts_on_another_machine(monkeypatch, tmp_path, train_it, code):
    """Dropout draws for each part."""
    command = [RECIPE, "--run", str(tmp_path / "run"), "--resume", "--r-drop", "0"]
    models = []
    monkeypatch.setattr(
        fit.Training, "run", lambda self: models.append(self.model) or train_it(self)
    )
    for available, epochs in ((3, 1), (5, 2)):
        monkeypatch.setattr(machine, "cores", lambda available=available: available)
        batch = [] if models else ["--batch-tokens", str(4 * MIN_TOKENS)]
        assert train.main([*command, *batch, "--epochs", str(epochs)]) == code
        assert read_json(tmp_path / "run" / "prepared" / "recipe.json")["cores"] == 3
    assert [model.cores for model in models] == [3, 3]


def test_threads_are_shared_among_parts_until_tensorflow_starts():
    program = """
import tensorflow as tf
from training.step import machine
from training.step.cores import share_threads
threads = tf.config.threading
machine.cores = lambda: 7
assert share_threads(3)
assert threads.get_intra_op_parallelism_threads() == 2
assert threads.get_inter_op_parallelism_threads() == 7
assert share_threads(8)
assert threads.get_intra_op_parallelism_threads() == 1
tf.constant(1) + 1
assert not share_threads(2)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# A recipe, which runs in the command's process; at its end it prints the state of the process.
WATCHED = """
import atexit, os

def tell():
    import tensorflow as tf

    remapping = tf.config.optimizer.get_experimental_options().get("remapping")
    print("remapping", remapping, "tunables", os.environ.get("GLIBC_TUNABLES"))

atexit.register(tell)
from killing_recipe import RECIPE
"""


@pytest.mark.slow
def test_train_command_configures_its_process_before_tensorflow_runs(tmp_path):
    """Nothing that it imports or reads makes TensorFlow compute before the threads are set."""
    (tmp_path / "watched.py").write_text(WATCHED)
    command = [sys.executable, "-m", "training.train", str(tmp_path / "watched.py")]
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [*command, "--run", str(tmp_path / "run"), "--cores", "2", "--epochs", "1"],
        cwd=ROOT, capture_output=True, text=True,
        env={**environment, "PYTHONPATH": str(SUPPORT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "epoch 1/1" in done.stderr and "keeps its threads" not in done.stderr
    tunables = "glibc.malloc.hugetlb=1" if sys.platform == "linux" else None
    assert done.stdout.splitlines()[-1] == f"remapping False tunables {tunables}"
