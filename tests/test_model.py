"""What the optimizer of a training does besides its steps: weight decay."""

import dataclasses

import keras
import numpy as np
import pytest

from tfformer import TransformerConfig
from training.model import compiled_model
from training.recipes.multi30k import RECIPE


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_weight_decay_takes_its_share_of_matrices_alone(optimizer, decay):
    """Without a gradient a step leaves W - rate * decay * W of a matrix, and all of a vector."""
    recipe = dataclasses.replace(RECIPE, optimizer=optimizer, weight_decay=decay)
    config = TransformerConfig.preset("test", 31, tie_embeddings="none")
    model = compiled_model(config, None, recipe, 7)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.5)  # biases begin as zeros
    before = [weight.numpy() for weight in model.trainable_variables]
    rate = float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))
    assert rate > 0
    model.optimizer.apply([keras.ops.zeros_like(weight) for weight in model.trainable_variables])
    for old, weight in zip(before, model.trainable_variables, strict=True):
        share = decay if weight.path.endswith(("kernel", "embeddings")) else 0.0
        np.testing.assert_allclose(
            weight.numpy() - old, -rate * share * old, atol=1e-7, err_msg=weight.path
        )
