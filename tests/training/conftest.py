"""Fixtures for the tests of training: one finished run for all, copies of it, text files."""

import json
import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from shared import once
from workers import start

from tfformer import run


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """An uninterrupted training; tests must not change it."""

    def make(folder):
        done = start(folder / "run")
        assert done.returncode == 0, done.stderr

    return once(tmp_path_factory, "finished", make) / "run"


@pytest.fixture(scope="module")
def loaded_once():
    """`load_service` and `load_translator` of `tfformer.run` return one service for all equal runs.

    So its graphs are traced only once. (Keras's `set_random_seed` frees the tables of a tokenizer;
    then it is loaded again.) A run with damaged weights counts as equal to an undamaged one, so
    this is not for tests of damage.
    """
    load, known = run.load_service, {}

    def once_each(directory, **options):
        alike = json.dumps([run.read_config(directory), options], sort_keys=True, default=id)
        if alike not in known or not _lives(known[alike][0]):
            known[alike] = load(directory, **options), options
        return known[alike][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "load_service", once_each)
        yield once_each


def _lives(service):
    try:
        service.tokenizer.encode_source(tf.constant(["a"]))
    except tf.errors.NotFoundError:
        return False
    return True


@pytest.fixture
def begun(finished, tmp_path):
    """A copy for the test to damage."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def files(tmp_path):
    """Writes text files; returns the arguments that name them."""

    def write(source=b"a b c\n" * 7, target=b"c b a\n" * 7):
        paths = []
        for name, content in (("source", source), ("target", target)):
            path = tmp_path / f"{name}.txt"
            if content is not None:
                path.write_bytes(content)
            paths += [f"--{name}", str(path)]
        return [*paths, "--run", str(tmp_path / "run"), "--preset", "test", "--epochs", "1"]

    return write
