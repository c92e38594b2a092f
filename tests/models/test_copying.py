"""A model that copies: its call returns the logarithm of the mixture."""

import numpy as np
import pytest
from variants import VOCABULARY, make

IDS = {
    "source_ids": np.array([[5, 9, 5, 8, 3], [7, 6, 3, 0, 0]]),
    "target_ids": np.array([[2, 9, 5], [2, 6, 0]]),
}


@pytest.mark.parametrize("tied", ["all", "none"])
def test_mixture_equals_the_logits_and_copies_by_cross_attention(tied, randomise):
    model = randomise(make("silu", tie_embeddings=tied, copy=True))
    mixture = model.mixture(IDS)
    assert mixture.gate.shape == (2, 3) and mixture.generated.shape == (2, 3, VOCABULARY)
    np.testing.assert_allclose(np.log(mixture.probabilities), model(IDS), atol=1e-4, rtol=1e-5)
    expected = np.mean(model.cross_attention_weights(IDS)[-1], axis=1)
    np.testing.assert_allclose(mixture.attention, expected, atol=1e-6)
    for part in (mixture.probabilities, mixture.generated, mixture.copied, mixture.attention):
        np.testing.assert_allclose(np.sum(part, axis=-1), 1, rtol=1e-5)
    # Only the source's words are copied, each by its attention.
    copied = np.zeros((2, 3, VOCABULARY))
    for b, t, s in np.ndindex(2, 3, 5):
        copied[b, t, IDS["source_ids"][b, s]] += mixture.attention[b, t, s]
    np.testing.assert_allclose(mixture.copied, copied, atol=1e-6)


def test_open_gate_generates_and_closed_gate_copies(randomise):
    model = randomise(make("silu", copy=True))
    gate = model.output_projection.gate
    for number, part in ((-99.0, "copied"), (99.0, "generated")):
        gate.set_weights([np.zeros(gate.kernel.shape), np.array([number])])
        mixture = model.mixture(IDS)
        np.testing.assert_allclose(mixture.gate, np.full((2, 3), number > 0), atol=1e-6)
        np.testing.assert_allclose(mixture.probabilities, getattr(mixture, part), atol=1e-6)


def test_a_model_that_does_not_copy_has_no_mixture():
    with pytest.raises(ValueError, match="mixture is of a model with copy=True, got copy=False"):
        make("paper").mixture(IDS)
