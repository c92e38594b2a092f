"""Weight decay."""

import keras
import numpy as np
import pytest

from tfformer import TransformerConfig
from training.preparation.initialisation import Beginning
from training.recipe import Recipe
from training.step.model import compiled_model
from training.tasks import TASKS


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_weight_decay_shrinks_only_trainable_matrices(optimizer, decay, dtype):
    """Without a gradient, a step leaves W - rate decay W of a matrix, and does not change other
    weights."""
    # The paper's rate at its peak, the first step: 1 / sqrt(d_model).
    recipe = Recipe(
        pairs=lambda split, data: (),
        preset="test",
        optimizer=optimizer,
        weight_decay=decay,
        warmup_steps=1,
        freeze="encoder",
        dtype=dtype,
    )
    config = TransformerConfig.preset(
        "test", 31, tie_embeddings="none", num_encoder_layers=1, num_decoder_layers=1
    )
    model = compiled_model(Beginning(config), TASKS["translation"], recipe, 7)
    for weight in model.weights:
        weight.assign(weight + 0.5)  # biases are initialised as zeros
    before = {weight.path: weight.numpy() for weight in model.weights}
    model.optimizer.apply([keras.ops.zeros_like(weight) for weight in model.trainable_variables])
    rate = config.d_model**-0.5
    for weight in model.weights:
        old = before[weight.path]
        matrix = weight.path.endswith(("kernel", "embeddings")) and "encoder/" not in weight.path
        share = decay if matrix else 0.0
        np.testing.assert_allclose(
            weight.numpy(), (1 - rate * share) * old, rtol=1e-5, err_msg=weight.path
        )
