"""Fixtures that several test files share: random numbers and weights, files, a served model."""

import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Else gRPC says that a server has gone, into what another test captures by then. It reads the
# variable when it is imported; the processes that tests start are not to inherit it.
os.environ["GRPC_VERBOSITY"] = "NONE"

import grpc  # noqa: E402, F401

del os.environ["GRPC_VERBOSITY"]

import numpy as np  # noqa: E402
import pytest  # noqa: E402


def pytest_fixture_setup(fixturedef):
    """The same weights in every run of the same tests: Keras takes its seeds from `random`."""
    random.seed(fixturedef.argname)


def pytest_runtest_call(item):
    random.seed(item.name)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def randomise():
    """Move every weight: biases and gains too, whose 0 and 1 would hide that they are unused."""

    def run(layer):
        rng = np.random.default_rng(11)
        for variable in layer.trainable_variables:
            variable.assign(variable + rng.normal(scale=0.3, size=variable.shape))
        for variable in layer.non_trainable_variables:
            # Those of BatchNorm. Its variances are large, or a softmax behind it is all or nothing.
            if variable.name == "moving_mean":
                variable.assign(rng.normal(scale=0.3, size=variable.shape))
            if variable.name == "moving_variance":
                variable.assign(rng.uniform(3, 9, size=variable.shape))
        return layer

    return run


@pytest.fixture
def reload(tmp_path):
    """The model that a `.keras` file gives back; nothing is passed as `custom_objects`."""
    import keras

    def run(model):
        model.save(tmp_path / "model.keras")
        return keras.saving.load_model(tmp_path / "model.keras")

    return run


@pytest.fixture
def same_dropout():
    """`same_dropout(layer)` is a function that winds the layer's random numbers back to here."""

    def run(layer):
        states = [variable for variable in layer.variables if "seed_generator" in variable.path]
        values = [state.numpy() for state in states]
        assert states, "a layer without dropout proves nothing here"

        def rewind():
            for state, value in zip(states, values, strict=True):
                state.assign(value)

        return rewind

    return run


@pytest.fixture(scope="module")
def translator_served():
    """The `Translator` of `served_model`; for one module: who seeds ends its tokenizer."""
    import tiny

    return tiny.translator_served()


@pytest.fixture(scope="session")
def served_model(tmp_path_factory):
    """A base directory whose version 1 is a SavedModel with all signatures, warm-up included."""
    import tiny
    from shared import once

    def make(folder):
        tiny.save_version(tiny.make_translator(**tiny.SERVED), folder / "tiny", 1)

    return once(tmp_path_factory, "models", make) / "tiny"


@pytest.fixture(scope="session")
def short(tmp_path_factory):
    """The served model with two signatures and one warm-up request: a server is soon done with it.

    They are `serving_default` and `translate_document`.
    """
    import tiny
    from serving import write_log
    from shared import once

    def make(folder):
        names = ["serving_default", "translate_document"]
        tiny.save_version(tiny.make_translator(**tiny.SERVED), folder, 1, names)
        write_log(folder / "1", ["serving_default"])

    return once(tmp_path_factory, "short", make) / "1"
