"""The encoder: the NumPy oracle, no access to padding or the future, use in another model."""

import inspect

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer import Encoder, EncoderLayer, SinusoidalPositionalEncoding, TokenEmbedding
from tfformer.config import ACTIVATIONS

B, S, V, N, D, H, F = 3, 5, 23, 2, 14, 2, 29

norms = pytest.mark.parametrize("norm", ["post", "pre"])
kinds = pytest.mark.parametrize("kind", ["layer", "stack"])


def make(kind, **kwargs):
    arguments = {"d_model": D, "num_heads": H, "d_ff": F, **kwargs}
    return EncoderLayer(**arguments) if kind == "layer" else Encoder(num_layers=N, **arguments)


def built(layer, randomise):
    layer.build((None, None, D))
    return randomise(layer)


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, S, D)).astype("float32")


@pytest.fixture
def mask():
    return np.arange(S) < np.array([[5], [3], [1]])


@norms
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_layer_equals_the_oracle(x, mask, norm, activation, causal, randomise):
    layer = built(EncoderLayer(D, H, F, activation=activation, norm=norm), randomise)
    output = layer(x, mask=mask, causal=causal)
    assert output.shape == (B, S, D)
    oracle.assert_close(output, oracle.encoder_layer(layer, x, mask, causal))


@norms
@pytest.mark.parametrize("masked", [False, True])
def test_encoder_equals_the_oracle(x, mask, norm, masked, randomise):
    encoder = built(Encoder(N, D, H, F, norm=norm), randomise)
    mask = mask if masked else None
    output = encoder(x, mask=mask)
    assert output.shape == (B, S, D)
    oracle.assert_close(output, oracle.encoder(encoder, x, mask))


@norms
@pytest.mark.parametrize("training", [False, True])
def test_causal_encoder_does_not_see_the_future(x, rng, norm, training, randomise, same_dropout):
    encoder = built(Encoder(N, D, H, F, dropout=0.3, norm=norm), randomise)
    rewind = same_dropout(encoder)
    for t in (0, S - 2):
        changed = x.copy()
        changed[:, t + 1 :] = rng.normal(size=changed[:, t + 1 :].shape)
        rewind()
        output = encoder(x, causal=True, training=training).numpy()
        rewind()
        other = encoder(changed, causal=True, training=training).numpy()
        oracle.assert_close(output[:, : t + 1], other[:, : t + 1])
        assert np.abs(output[:, t + 1 :] - other[:, t + 1 :]).max() > 1e-2


@norms
def test_padding_changes_nothing_through_the_masks_of_a_sequential_model(norm, randomise):
    model = keras.Sequential(
        [TokenEmbedding(V, D), SinusoidalPositionalEncoding(D), Encoder(N, D, H, F, norm=norm)]
    )
    ids = np.array([[5, 7, 11], [22, 3, 0]])
    padded = np.pad(ids, ((0, 0), (0, 4)))
    short = model(ids)
    randomise(model)
    short, long = model(ids).numpy(), model(padded).numpy()
    oracle.assert_close(long[0, :3], short[0])
    oracle.assert_close(long[1, :2], short[1, :2])
    oracle.assert_close(model(ids[1:, :2])[0], short[1, :2])
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(model(padded)), padded != 0)


@norms
def test_wholly_padded_row_is_finite_with_finite_gradient(x, norm, randomise):
    encoder = built(Encoder(N, D, H, F, norm=norm), randomise)
    mask = np.ones((B, S), bool)
    mask[1] = False
    with tf.GradientTape() as tape:
        output = encoder(x, mask=mask)
        loss = tf.reduce_sum(output**2)
    assert np.isfinite(output).all()
    gradients = tape.gradient(loss, encoder.trainable_variables)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    oracle.assert_close(output[0], encoder(x[:1])[0])


def test_every_dropout_acts_in_training_only(x):
    encoder = Encoder(N, D, H, F, dropout=0.5)
    assert np.abs(encoder(x, training=True) - encoder(x, training=False)).max() > 1e-2
    np.testing.assert_array_equal(encoder(x, training=False), encoder(x))


@kinds
def test_keras_file_gives_the_same_outputs(x, mask, kind, randomise, reload):
    inputs = keras.Input((None, D)), keras.Input((None,), dtype="bool")
    output = make(kind)(inputs[0], mask=inputs[1], causal=True)
    model = randomise(keras.Model(inputs, output))
    assert model.output_shape == (None, None, D)
    np.testing.assert_array_equal(reload(model)([x, mask]), model([x, mask]))


def test_error_names_a_bad_number_of_layers():
    with pytest.raises(ValueError, match="num_layers must be an integer of at least 1, got 0"):
        Encoder(0, D, H, F)


@kinds
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 3}, "d_model=14 and num_heads=3"),
        ({"d_ff": 0}, "d_ff must be .* at least 1, got 0"),
        ({"activation": "tanh"}, "activation must be one of .* got 'tanh'"),
        ({"norm": "both"}, "norm must be one of .* got 'both'"),
    ],
)
def test_error_names_a_bad_argument(kind, change, message):
    with pytest.raises(ValueError, match=message):
        make(kind, **change)


@kinds
@pytest.mark.parametrize("inside", ["attention_dropout", "activation_dropout"])
def test_dropout_inside_acts_in_training_only(kind, x, inside):
    layer = make(kind, dropout=0.0, **{inside: 0.5})
    np.testing.assert_array_equal(layer(x, training=False), layer(x))
    assert np.abs(layer(x, training=True) - layer(x)).max() > 1e-3


def test_last_norm_decides_whether_the_stack_has_a_final_norm(x):
    for norm, last, ends in (("post", None, False), ("post", True, True), ("pre", False, False)):
        encoder = make("stack", norm=norm, last_norm=last)
        encoder.build(x.shape)
        assert hasattr(encoder, "final_norm") == ends
    with pytest.raises(ValueError, match="last_norm must be True or False, got 'yes'"):
        make("stack", last_norm="yes")


@kinds
def test_unknown_argument_error_suggests_the_intended_one(kind, x):
    with pytest.raises(TypeError, match="has no argument num_haeds: did you mean num_heads?"):
        make(kind, num_haeds=7)
    with pytest.raises(TypeError, match="has no argument attention_mask: "):
        make(kind)(x, attention_mask=x)


@pytest.mark.slow
def test_classifier_of_the_docstring_learns_and_survives_a_keras_file(rng, reload):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            TokenEmbedding(V, D),
            SinusoidalPositionalEncoding(D),
            Encoder(1, D, H, F, dropout=0.0),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    # Which of the ids 4 and 5 is there, among others, in sequences of several lengths?
    ids = rng.integers(6, V, size=(128, 7)) * (np.arange(7) < rng.integers(3, 8, size=(128, 1)))
    labels = rng.integers(0, 2, size=128)
    ids[np.arange(128), rng.integers(0, 3, size=128)] = 4 + labels
    model.fit(ids, labels, batch_size=32, epochs=15, verbose=0)
    assert model.evaluate(ids, labels, verbose=0)[1] > 0.95
    again = reload(model)
    np.testing.assert_allclose(
        again.predict(ids, verbose=0), model.predict(ids, verbose=0), atol=1e-6
    )


@pytest.mark.parametrize("layer, first", [(Encoder, ["num_layers"]), (EncoderLayer, [])])
def test_signature_lists_the_options_with_defaults(layer, first):
    parameters = inspect.signature(layer).parameters
    assert list(parameters)[: len(first) + 4] == [*first, "d_model", "num_heads", "d_ff", "dropout"]
    assert parameters["d_ff"].default is inspect.Parameter.empty
    assert (parameters["dropout"].default, parameters["activation"].default) == (0.1, "relu")
