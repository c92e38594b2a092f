"""`model.export` of Keras: from ids to logits."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiers import slow_or_nightly

from tfformer.models import FAMILIES

IDS = np.array([[5, 6, 7, 3], [5, 3, 0, 0]], "int32")


def model_of(family):
    kind = FAMILIES[family]
    labels = {"num_labels": 3} if "num_labels" in kind.configuration.__dataclass_fields__ else {}
    return kind.model(kind.configuration.preset("test", 97, **labels))


def inputs_of(model):
    specs = model.input_specs()
    return dict.fromkeys(specs, IDS) if isinstance(specs, dict) else IDS


@pytest.mark.parametrize("family", slow_or_nightly(FAMILIES, ["encoder-decoder", "span"]))
def test_a_saved_model_gives_the_logits_of_the_model(family, tmp_path):
    model = model_of(family)
    inputs = inputs_of(model)
    model.export(tmp_path / "model", verbose=False)
    again = tf.saved_model.load(tmp_path / "model")
    found = again.serve(tf.nest.map_structure(tf.constant, inputs))
    for ours, theirs in zip(tf.nest.flatten(model(inputs)), tf.nest.flatten(found), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-5)


@pytest.mark.slow
def test_litert_of_a_fixed_shape_gives_the_logits_of_the_model(tmp_path):
    model, path = model_of("language-model"), tmp_path / "model.tflite"
    shape = keras.InputSpec(shape=IDS.shape, dtype="int32")
    model.export(path, format="litert", input_signature=[shape], verbose=False)
    run = tf.lite.Interpreter(str(path)).get_signature_runner()
    [found] = run(args_0=IDS).values()
    np.testing.assert_allclose(found, model(IDS), atol=1e-5)
