"""Training in half precision gives results close to training in float32."""

import functools

import keras
import numpy as np
import pytest

from tfformer import SmoothedCrossEntropy, Transformer, TransformerConfig
from tfformer.run import model_weights
from training.step.adam import Adam
from training.step.muon import Muon
from training.step.muon_matrices import matrices_of
from training.step.parallel import in_parts

pytestmark = pytest.mark.slow

V, ROWS, STEPS = 53, 12, 7
CONFIG = TransformerConfig.preset("test", V, num_encoder_layers=1, num_decoder_layers=1, dropout=0)


def batch():
    ids = np.random.default_rng(5).integers(4, V, size=(ROWS, 11)).astype("int32")
    ids *= np.arange(11) < np.arange(ROWS)[:, None] + 1
    return {"source_ids": ids, "target_ids": ids}, ids


def adam(model):
    return Adam(0.01, global_clipnorm=1.0)


def muon(model):
    return Muon(0.01, matrices_of(model), global_clipnorm=1.0)


def compiled(dtype, make, parts):
    keras.utils.set_random_seed(7)
    model = in_parts(Transformer)(CONFIG, parts=parts, dtype=dtype)
    model.compile(make(model), SmoothedCrossEntropy())
    model.optimizer.build(model.trainable_variables)
    return model


def losses(model):
    inputs, labels = batch()
    fitted = model.fit(inputs, labels, batch_size=ROWS, epochs=STEPS, shuffle=False, verbose=0)
    return np.array(fitted.history["loss"])


@functools.cache
def losses_of_float32(make):
    return losses(compiled("float32", make, 1))


@pytest.mark.parametrize("make", [adam, muon])
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_losses_are_near_those_of_float32(make, dtype, parts):
    expected = losses_of_float32(make)
    assert expected[-1] < 0.9 * expected[0]
    np.testing.assert_allclose(losses(compiled(dtype, make, parts)), expected, rtol=0.02)


def test_a_gradient_that_is_not_finite_changes_no_weight():
    """Instead, the scale of the loss is halved."""
    model = compiled("mixed_float16", adam, 1)
    losses(model)
    before = model_weights(model)
    model.optimizer.dynamic_scale.assign(2.0**120)
    inputs, labels = batch()
    model.fit(inputs, labels, batch_size=ROWS, verbose=0)
    assert float(model.optimizer.dynamic_scale) == 2.0**119
    for name, value in model_weights(model).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    model.optimizer.dynamic_scale.assign(2.0**10)
    model.fit(inputs, labels, batch_size=ROWS, verbose=0)
    after = model_weights(model)
    assert any((after[name] != value).any() for name, value in before.items())
