"""A `.keras` file of each registered class, written on 2026-11-23, must load in all later versions.

`tests/support/write_keras_files.py` wrote them. If this test fails, repair the loading and not the
stored files, because users have such files.
"""

import json

import keras
import numpy as np
import pytest
from paths import DATA

import tfformer  # noqa: F401  registers the classes

STORED = DATA / "keras-files"
FILES = sorted(path.stem for path in STORED.glob("*.keras"))
CONFIGURATIONS = json.loads((STORED / "configurations.json").read_text())


@pytest.fixture(scope="module")
def answers():
    return np.load(STORED / "answers.npz")


def stored_inputs(answers, name):
    given = {
        key.rsplit("/", 1)[1]: answers[key] for key in answers.files if key.startswith(f"{name}/in")
    }
    if "source_ids" in given:
        return given
    inputs = [given[str(n)] for n in range(len(given))]
    return inputs if len(inputs) > 1 else inputs[0]


def classes_in(value):
    """The registered names in a stored configuration, at any depth."""
    if isinstance(value, dict):
        own = {value["registered_name"]} if value.get("registered_name") else set()
        return own.union(*map(classes_in, value.values()))
    return set().union(*map(classes_in, value)) if isinstance(value, list) else set()


def test_stored_files_cover_the_listed_classes():
    import zipfile

    found = classes_in(CONFIGURATIONS)
    for name in FILES:
        with zipfile.ZipFile(STORED / f"{name}.keras") as file:
            found |= classes_in(json.loads(file.read("config.json")))
    assert {name for name in found if name.startswith("tfformer>")} == {
        f"tfformer>{name}"
        for name in (
            "Decoder DecoderLayer Dropout Encoder EncoderLayer FeedForward LayerNorm "
            "LearnedPositionalEmbedding MultiHeadAttention Perplexity Residual "
            "SinusoidalPositionalEncoding SmoothedCrossEntropy TokenAccuracy TokenEmbedding "
            "Transformer WarmupSchedule"
        ).split()
    }


@pytest.mark.parametrize("name", FILES)
def test_stored_file_loads_and_gives_the_stored_outputs(name, answers):
    model = keras.saving.load_model(STORED / f"{name}.keras")
    found = model(stored_inputs(answers, name), training=False)
    np.testing.assert_allclose(found, answers[f"{name}/out"], atol=1e-5, rtol=1e-5)


def test_stored_model_continues_training(answers):
    model = keras.saving.load_model(STORED / "transformer.keras")
    assert int(model.optimizer.iterations) == 1
    labels = np.array([[5, 6, 3], [4, 3, 0]])
    logs = model.train_on_batch(stored_inputs(answers, "transformer"), labels, return_dict=True)
    assert set(logs) == {"loss", "accuracy", "perplexity"} and int(model.optimizer.iterations) == 2


@pytest.mark.parametrize("name", sorted(CONFIGURATIONS))
def test_stored_configuration_is_unchanged_after_loading(name):
    made = keras.saving.deserialize_keras_object(CONFIGURATIONS[name])
    stored, now = (
        value["config"]
        for value in (CONFIGURATIONS[name], keras.saving.serialize_keras_object(made))
    )
    assert stored == {key: now[key] for key in stored}
