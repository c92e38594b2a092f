"""Inputs with more axes before the positions, such as pieces of texts [B, P, T, D]: each piece
is computed as if alone."""

import keras
import numpy as np
import pytest

import tfformer

B, T, S, D = 2, 5, 7, 20  # heads of 10: rotary positions want even ones


@pytest.fixture
def pieces(rng):
    """As many pieces as positions, so that a mask of pieces cannot be taken for a mask of pairs."""
    mask = rng.random((B, T, T)) < 0.7
    mask[..., 0] = True
    return rng.normal(size=(B, T, T, D)).astype("float32"), mask


def one_by_one(layer, x, *more, **options):
    """The outputs of each piece computed alone."""
    of_text = [
        keras.ops.stack(
            [
                layer(
                    *[part[b, p][None] for part in (x, *more)],
                    **{
                        name: value[b, p][None] if isinstance(value, np.ndarray) else value
                        for name, value in options.items()
                    },
                )[0]
                for p in range(x.shape[1])
            ]
        )
        for b in range(x.shape[0])
    ]
    return keras.ops.convert_to_numpy(keras.ops.stack(of_text))


OPTIONS = [{}, {"positions": "rotary"}, {"positions": "alibi"}, {"positions": "relative"}]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [*OPTIONS, {"num_key_value_heads": 1}])
def test_self_attention_equals_each_piece_alone(pieces, causal, options, randomise):
    x, mask = pieces
    layer = tfformer.MultiHeadAttention(D, num_heads=2, **options)
    layer.build(x.shape)
    randomise(layer)
    expected = one_by_one(layer, x, mask=mask, causal=causal)
    np.testing.assert_allclose(layer(x, mask=mask, causal=causal), expected, atol=1e-5)
    pairs = np.random.default_rng(1).random((B, T, T, T)) < 0.6
    expected = one_by_one(layer, x, mask=pairs, causal=causal)
    np.testing.assert_allclose(layer(x, mask=pairs, causal=causal), expected, atol=1e-5)


def test_cross_attention_equals_each_piece_alone(pieces, rng, randomise):
    x, _ = pieces
    value = rng.normal(size=(B, T, S, D)).astype("float32")
    value_mask = rng.random((B, T, S)) < 0.7
    layer = tfformer.MultiHeadAttention(D, num_heads=2)
    layer.build(x.shape, value.shape)
    randomise(layer)
    expected = one_by_one(layer, x, value, value_mask=value_mask)
    np.testing.assert_allclose(layer(x, value, value_mask=value_mask), expected, atol=1e-5)


@pytest.mark.parametrize("normalization", ["layer", "rms", "ada"])
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_equals_each_piece_alone(pieces, causal, normalization, randomise):
    x, mask = pieces
    layer = tfformer.Encoder(2, D, num_heads=2, d_ff=13, normalization=normalization)
    layer.build(x.shape)
    randomise(layer)
    expected = one_by_one(layer, x, mask=mask, causal=causal)
    np.testing.assert_allclose(layer(x, mask=mask, causal=causal), expected, atol=1e-5)


def test_decoder_equals_each_piece_alone(pieces, rng, randomise):
    x, mask = pieces
    memory = rng.normal(size=(B, T, S, D)).astype("float32")
    memory_mask = rng.random((B, T, S)) < 0.7
    layer = tfformer.Decoder(2, D, num_heads=2, d_ff=13, location_width=3)
    layer.build(x.shape, memory.shape)
    randomise(layer)
    known = {"x_mask": mask, "memory_mask": memory_mask}
    expected = one_by_one(layer, x, memory, **known)
    np.testing.assert_allclose(layer(x, memory, **known), expected, atol=1e-5)


@pytest.mark.parametrize(
    "layer", [tfformer.SinusoidalPositionalEncoding(D), tfformer.LearnedPositionalEmbedding(9, D)]
)
def test_positions_count_the_tokens_and_not_the_pieces(pieces, layer):
    x, _ = pieces
    np.testing.assert_allclose(layer(x), one_by_one(layer, x), atol=1e-6)


def test_model_of_documents_equals_each_piece_alone(rng):
    """Keras propagates the mask from the ids; `TimeDistributed` gives the same."""
    ids = rng.integers(1, 17, (B, 3, T))
    ids[0, :, 3:] = 0
    inner = keras.Sequential([
        keras.Input([None], dtype="int32"), tfformer.TokenEmbedding(17, D),
        tfformer.SinusoidalPositionalEncoding(D), tfformer.Encoder(1, D, 2, 13),
    ])  # fmt: skip
    inputs = keras.Input([None, None], dtype="int32")
    x = inputs
    for layer in inner.layers:
        x = layer(x)
    whole = keras.Model(inputs, x)
    np.testing.assert_allclose(whole(ids), one_by_one(inner, ids), atol=1e-5)


@pytest.mark.parametrize("shape", [(B, T, T, T), (B, T), (B, T, T + 1), (B, 3, T)])
def test_a_mask_that_does_not_fit_is_refused(pieces, shape):
    x, _ = pieces
    encoder = tfformer.Encoder(1, D, 2, 13)
    with pytest.raises(ValueError, match=r"mask must be \[..., T\] for an input of .*, got"):
        encoder(x, mask=np.ones(shape, bool))


def test_encoder_refuses_a_mask_of_pairs(rng):
    x = rng.normal(size=(B, T, D)).astype("float32")
    with pytest.raises(
        ValueError, match=r"mask must be \[B, T\] for an input of .*, got \(2, 5, 5"
    ):
        tfformer.Encoder(1, D, 2, 13)(x, mask=np.ones((B, T, T), bool))
