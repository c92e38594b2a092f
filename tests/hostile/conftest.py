"""Fixtures of the hostile suite."""

import keras
import numpy as np
import pytest
import tiny
from shared import once


@pytest.fixture(scope="session")
def two_models(tmp_path_factory):
    """Folders `a` and `b` of two models whose weights, graphs and answers differ.

    Their texts are cut at different lengths, and `b` has other words where `a` has its own: a
    graph of one over the weights of the other answers as neither of them.
    """

    def make(folder):
        names = ["serving_default", "sample", "score"]
        tiny.save_version(tiny.make_translator(**tiny.SERVED), folder / "a", 1, names)
        other = tiny.make_translator(**{**tiny.SERVED, "max_target_length": 7})
        kernel = other.model.output_projection.kernel
        words = keras.ops.convert_to_numpy(kernel)
        first = tiny.FIRST_BYTE + 256
        kernel.assign(np.hstack([words[:, :first], np.roll(words[:, first:], 1, axis=1)]))
        tiny.save_version(other, folder / "b", 1, names)

    return once(tmp_path_factory, "two-models", make)
