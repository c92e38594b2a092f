"""Fixtures that several test files share: random numbers, random weights, files, a served model."""

import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Otherwise gRPC logs that a server has stopped, into the output that another test captures. It
# reads the variable when it is imported. Processes that tests start must not inherit it.
os.environ["GRPC_VERBOSITY"] = "NONE"

import grpc  # noqa: E402, F401

del os.environ["GRPC_VERBOSITY"]

import numpy as np  # noqa: E402
import pytest  # noqa: E402


def pytest_fixture_setup(fixturedef):
    """Makes the weights the same in each run of the same tests: Keras takes its seeds from
    `random`."""
    random.seed(fixturedef.argname)


def pytest_runtest_call(item):
    random.seed(item.name)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def randomise():
    """Changes all weights, also biases and gains: their initial 0 and 1 would hide that they are
    unused."""

    def run(layer):
        rng = np.random.default_rng(11)
        for variable in layer.trainable_variables:
            variable.assign(variable + rng.normal(scale=0.3, size=variable.shape))
        for variable in layer.non_trainable_variables:
            # Weights of BatchNorm. Its variances are large, because otherwise a later softmax
            # saturates.
            if variable.name == "moving_mean":
                variable.assign(rng.normal(scale=0.3, size=variable.shape))
            if variable.name == "moving_variance":
                variable.assign(rng.uniform(3, 9, size=variable.shape))
        return layer

    return run


@pytest.fixture
def reload(tmp_path):
    """Loads a model from its `.keras` file, without `custom_objects`."""
    import keras

    def run(model):
        model.save(tmp_path / "model.keras")
        return keras.saving.load_model(tmp_path / "model.keras")

    return run


@pytest.fixture
def same_dropout():
    """`same_dropout(layer)` returns a function that resets the layer's random numbers."""

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
    """The `Translator` of `served_model`. It is made for each module, because seeding ends its
    tokenizer."""
    import tiny

    return tiny.translator_served()


@pytest.fixture(scope="session")
def served_model(tmp_path_factory):
    """A base directory; version 1 is a SavedModel with all signatures and warm-up requests."""
    import tiny
    from shared import once

    def make(folder):
        tiny.save_version(tiny.make_translator(**tiny.SERVED), folder / "tiny", 1)

    return once(tmp_path_factory, "models", make) / "tiny"


@pytest.fixture(scope="session")
def short(tmp_path_factory):
    """The served model with two signatures and one warm-up request, so that a server loads it fast.

    The signatures are `serving_default` and `translate_document`.
    """
    import tiny
    from serving import write_log
    from shared import once

    def make(folder):
        names = ["serving_default", "translate_document"]
        tiny.save_version(tiny.make_translator(**tiny.SERVED), folder, 1, names)
        write_log(folder / "1", ["serving_default"])

    return once(tmp_path_factory, "short", make) / "1"
