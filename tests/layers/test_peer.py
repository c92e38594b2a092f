"""KerasNLP's layers, given the same weights, give the same outputs."""

import numpy as np
import oracle
import pytest

from tfformer import DecoderLayer, EncoderLayer, SinusoidalPositionalEncoding

keras_nlp = pytest.importorskip("keras_nlp", reason="keras-nlp is not installed")

D, H, D_FF, B, S, T = 14, 2, 29, 3, 7, 5


def copy_attention(ours, theirs):
    """Our [D, D] matrices, head beside head, as their [D, H, K] and [H, K, D]."""
    for name in ("query", "key", "value"):
        mine = getattr(ours, f"{name}_projection")
        dense = getattr(theirs, f"{name}_dense")
        dense.kernel.assign(mine.kernel.numpy().reshape(D, H, D // H))
        dense.bias.assign(mine.bias.numpy().reshape(H, D // H))
    theirs.output_dense.kernel.assign(ours.output_projection.kernel.numpy().reshape(H, D // H, D))
    theirs.output_dense.bias.assign(ours.output_projection.bias.numpy())


def copy(ours, theirs):
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        other.assign(mine.numpy())


def copy_feed_forward(ours, theirs):
    copy(ours.feed_forward.inner, theirs._feedforward_intermediate_dense)
    copy(ours.feed_forward.outer, theirs._feedforward_output_dense)
    copy(ours.feed_forward_residual.layer_norm, theirs._feedforward_layer_norm)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_layer(norm, rng, randomise):
    x = rng.normal(size=(B, S, D)).astype("float32")
    mask = np.arange(S) < np.array([[7], [3], [5]])
    ours = EncoderLayer(D, H, D_FF, dropout=0.0, norm=norm)
    ours(x, mask=mask)
    randomise(ours)
    theirs = keras_nlp.layers.TransformerEncoder(
        D_FF, H, dropout=0.0, layer_norm_epsilon=1e-6, normalize_first=norm == "pre"
    )
    theirs(x)
    copy_attention(ours.self_attention, theirs._self_attention_layer)
    copy(ours.attention_residual.layer_norm, theirs._self_attention_layer_norm)
    copy_feed_forward(ours, theirs)
    expected = theirs(x, padding_mask=mask)
    oracle.assert_close(ours(x, mask=mask)[mask], expected[mask])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_layer(norm, rng, randomise):
    x = rng.normal(size=(B, T, D)).astype("float32")
    memory = rng.normal(size=(B, S, D)).astype("float32")
    mask = np.arange(S) < np.array([[7], [3], [5]])
    ours = DecoderLayer(D, H, D_FF, dropout=0.0, norm=norm)
    ours(x, memory)
    randomise(ours)
    theirs = keras_nlp.layers.TransformerDecoder(
        D_FF, H, dropout=0.0, layer_norm_epsilon=1e-6, normalize_first=norm == "pre"
    )
    theirs(x, memory)
    copy_attention(ours.self_attention, theirs._self_attention_layer)
    copy_attention(ours.cross_attention, theirs._cross_attention_layer)
    copy(ours.self_residual.layer_norm, theirs._self_attention_layer_norm)
    copy(ours.cross_residual.layer_norm, theirs._cross_attention_layer_norm)
    copy_feed_forward(ours, theirs)
    expected = theirs(x, memory, encoder_padding_mask=mask)
    oracle.assert_close(ours(x, memory, memory_mask=mask), expected)


def test_sinusoidal_positions():
    x = np.zeros((B, T, D), "float32")
    expected = keras_nlp.layers.SinePositionEncoding()(x)
    oracle.assert_close(SinusoidalPositionalEncoding(D)(x), expected)
