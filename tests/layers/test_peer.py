"""With the same weights, KerasNLP's layers give the same outputs; and both work in one model."""

import keras
import keras_nlp
import numpy as np
import oracle
import pytest

import tfformer
from tfformer import DecoderLayer, Encoder, EncoderLayer, SinusoidalPositionalEncoding

D, H, D_FF, B, S, T = 14, 2, 29, 3, 7, 5
MASK = np.arange(S) < np.array([[7], [3], [5]])
OPTIONS = {"dropout": 0.1, "layer_norm_epsilon": 1e-4}
both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, S, D)).astype("float32")


@pytest.fixture
def memory(rng):
    return rng.normal(size=(B, S, D)).astype("float32")


def encoder_of(norm, **changes):
    options = {**OPTIONS, "normalize_first": norm == "pre", **changes}
    theirs = keras_nlp.layers.TransformerEncoder(D_FF, H, **options)
    theirs.build((None, None, D))
    return theirs


def decoder_of(norm, *memory_shape, **changes):
    options = {**OPTIONS, "normalize_first": norm == "pre", **changes}
    theirs = keras_nlp.layers.TransformerDecoder(D_FF, H, **options)
    theirs.build((None, None, D), *memory_shape)
    return theirs


@both_norms
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_encoder_layer_equals_kerashub_in_both_directions(norm, activation, x, randomise):
    theirs = randomise(encoder_of(norm, activation=activation))
    ours = tfformer.from_keras_hub(theirs)
    assert (ours.dropout, ours.attention_dropout, ours.epsilon) == (0.1, 0.1, 1e-4)
    expected = theirs(x, padding_mask=MASK)
    oracle.assert_close(ours(x, mask=MASK)[MASK], expected[MASK])
    # And back, into layers with other weights.
    again = tfformer.to_keras_hub(randomise(ours), encoder_of(norm, activation=activation))
    oracle.assert_close(again(x, padding_mask=MASK)[MASK], ours(x, mask=MASK)[MASK])


@both_norms
def test_decoder_layer_equals_kerashub_in_both_directions(norm, x, memory, randomise):
    theirs = randomise(decoder_of(norm, (None, None, D)))
    ours = tfformer.from_keras_hub(theirs)
    x = x[:, :T]
    expected = theirs(x, memory, encoder_padding_mask=MASK)
    oracle.assert_close(ours(x, memory, memory_mask=MASK), expected)
    again = tfformer.to_keras_hub(randomise(ours), decoder_of(norm, (None, None, D)))
    found = again(x, memory, encoder_padding_mask=MASK)
    oracle.assert_close(found, ours(x, memory, memory_mask=MASK))


def test_a_decoder_without_a_memory_is_a_causal_encoder_layer(x, randomise):
    theirs = randomise(decoder_of("pre"))
    ours = tfformer.from_keras_hub(theirs)
    assert type(ours) is EncoderLayer
    oracle.assert_close(ours(x, causal=True), theirs(x))
    again = tfformer.to_keras_hub(randomise(ours), decoder_of("pre"))
    oracle.assert_close(again(x), ours(x, causal=True))


def test_only_full_multi_head_attention_converts_to_kerashub(x, randomise):
    for count in (H, 1):
        ours = EncoderLayer(D, H, D_FF, epsilon=1e-4, num_key_value_heads=count)
        ours.build(x.shape)
        randomise(ours)
        if count == H:
            theirs = tfformer.to_keras_hub(ours, encoder_of("post"))
            oracle.assert_close(theirs(x), ours(x))
        else:
            with pytest.raises(ValueError, match="num_key_value_heads=None, as in .* got 1"):
                tfformer.to_keras_hub(ours, encoder_of("post"))


def test_a_layer_without_biases_has_no_counterpart_in_kerashub():
    ours = EncoderLayer(D, H, D_FF, epsilon=1e-4, use_bias=False)
    ours.build((None, None, D))
    with pytest.raises(ValueError, match="use_bias=True, as in Transformer.*, got False"):
        tfformer.to_keras_hub(ours, encoder_of("post"))


def test_incompatible_layers_are_refused():
    ours = EncoderLayer(D, H, D_FF, epsilon=1e-4)
    with pytest.raises(ValueError, match="layer must be a built EncoderLayer"):
        tfformer.to_keras_hub(ours, encoder_of("post"))
    ours.build((None, None, D))
    for target, said in (
        (encoder_of("pre"), "norm, 'post', got 'pre'"),
        (encoder_of("post", layer_norm_epsilon=1e-5), "epsilon, 0.0001, got 1e-05"),
        (encoder_of("post", activation="gelu"), "activation, 'relu', got 'gelu'"),
        (decoder_of("post", (None, None, D)), "a layer without a memory"),
        (keras.layers.Dense(7), "layer must be a built TransformerEncoder or TransformerDecoder"),
    ):
        with pytest.raises(ValueError, match=said):
            tfformer.to_keras_hub(ours, target)
    deep = DecoderLayer(D, H, D_FF, epsilon=1e-4)
    deep.build((None, None, D), (None, None, D))
    with pytest.raises(ValueError, match="a decoder that attends to a memory"):
        tfformer.to_keras_hub(deep, encoder_of("post"))
    odd = keras_nlp.layers.TransformerEncoder(D_FF, 3)
    for theirs, said in (
        (odd, "layer must be a built"),
        (encoder_of("post", activation="tanh"), "activation of the layer must be one of"),
        (decoder_of("post", (None, None, D + 2)), "memory of the layer must be as wide"),
    ):
        with pytest.raises(ValueError, match=said):
            tfformer.from_keras_hub(theirs)
    odd.build((None, None, D))
    with pytest.raises(ValueError, match="heads of the layer must be as wide as it is, 14"):
        tfformer.from_keras_hub(odd)


def test_sinusoidal_positions_equal_kerashub():
    x = np.zeros((B, T, D), "float32")
    expected = keras_nlp.layers.SinePositionEncoding()(x)
    oracle.assert_close(SinusoidalPositionalEncoding(D)(x), expected)


@pytest.mark.slow
def test_encoder_after_a_keras_nlp_embedding_uses_its_mask_and_trains(rng, reload):
    """In one functional model, our layers get its mask; the model is trained, saved and loaded."""
    embedding = keras_nlp.layers.TokenAndPositionEmbedding(17, S, D, mask_zero=True)
    ids = keras.Input([S], dtype="int32")
    encoded = Encoder(num_layers=1, d_model=D, num_heads=H, d_ff=D_FF, dropout=0.0)(embedding(ids))
    output = keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(encoded))
    model = keras.Model(ids, output)

    given = rng.integers(1, 17, size=(B, S)) * MASK
    longer = np.where(MASK, given, 0)
    alone = [model(longer[n : n + 1]).numpy() for n in range(B)]
    np.testing.assert_allclose(model(longer), np.concatenate(alone), atol=1e-5)
    # Padding changes neither the attention nor the mean.
    by_hand = model.layers[2](embedding(longer), mask=MASK).numpy()
    means = np.stack([by_hand[n, MASK[n]].mean(axis=0) for n in range(B)])
    oracle.assert_close(model(longer), model.layers[-1](means))

    model.compile(keras.optimizers.Adam(0.003), "mse", jit_compile=False)
    labels = 3 + rng.normal(size=(B, 1))
    losses = model.fit(longer, labels, epochs=61, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    oracle.assert_close(reload(model)(longer), model(longer))
