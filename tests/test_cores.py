"""In how many parts a CPU computes a batch, and that a run keeps to it."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from workers import RECIPE, train

from tfformer.run import read_json
from training import machine
from training.cores import LEAST_TOKENS, MOST, cores_of
from training.recipe import AUTO, load_recipe


def recipe(**changes):
    return dataclasses.replace(load_recipe(RECIPE), **changes)


@pytest.mark.parametrize(
    ("cores", "changes", "expected"),
    [
        (1, {"batch_tokens": 9 * LEAST_TOKENS}, 1),
        (7, {"batch_tokens": 9 * LEAST_TOKENS}, 7),
        (7, {"batch_tokens": 3 * LEAST_TOKENS}, 3),
        (7, {"batch_tokens": LEAST_TOKENS - 1}, 1),
        (3 * MOST, {"batch_tokens": 5 * MOST * LEAST_TOKENS}, MOST),
        (7, {"batch_tokens": 9 * LEAST_TOKENS, "strategy": "mirrored"}, 1),
        (2, {"batch_tokens": LEAST_TOKENS, "cores": 5}, 5),
    ],
)
def test_as_many_parts_as_cores_if_each_has_something_to_do(monkeypatch, cores, changes, expected):
    monkeypatch.setattr(machine, "cores", lambda: cores)
    assert cores_of(recipe(**changes)) == expected


def test_a_gpu_shares_its_batch_itself(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 7)
    assert cores_of(recipe(batch_tokens=AUTO)) == 1
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    assert cores_of(recipe(batch_tokens=9 * LEAST_TOKENS)) == 1


@pytest.mark.slow
def test_a_run_keeps_its_parts_on_a_machine_of_other_cores(tmp_path):
    """They are in its settings, which it goes on with."""
    train(tmp_path / "run", "--epochs", "1", "--cores", "3")
    train(tmp_path / "run", "--resume", "--epochs", "2")
    assert read_json(tmp_path / "run" / "prepared" / "recipe.json")["cores"] == 3


def test_operations_get_a_thread_each_while_that_can_be_said():
    program = """
import tensorflow as tf
from training import machine
from training.cores import one_thread_each
threads = tf.config.threading
one_thread_each()
assert threads.get_intra_op_parallelism_threads() == 1
assert threads.get_inter_op_parallelism_threads() == machine.cores()
tf.constant(1) + 1
machine.cores = lambda: 7
one_thread_each()
assert threads.get_inter_op_parallelism_threads() != 7
"""
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent.parent, check=True)
