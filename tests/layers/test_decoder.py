"""The decoder: the NumPy oracle, no access to the future, cached step = whole pass."""

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer import Decoder, DecoderLayer
from tfformer.config import ACTIVATIONS

B, T, S, W, N, D, H, F = 2, 5, 7, 3, 2, 22, 2, 29

norms = pytest.mark.parametrize("norm", ["post", "pre"])
kinds = pytest.mark.parametrize("kind", ["layer", "stack"])


def make(kind, **kwargs):
    arguments = {"d_model": D, "num_heads": H, "d_ff": F, **kwargs}
    return DecoderLayer(**arguments) if kind == "layer" else Decoder(num_layers=N, **arguments)


def built(layer, randomise):
    layer.build((None, None, D), (None, None, D))
    return randomise(layer)


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, T, D)).astype("float32")


@pytest.fixture
def memory(rng):
    return rng.normal(size=(B, S, D)).astype("float32")


@pytest.fixture
def x_mask():
    return np.arange(T) < np.array([[5], [3]])


@pytest.fixture
def memory_mask():
    return np.arange(S) < np.array([[4], [7]])


@norms
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_decoder_layer_equals_the_oracle(
    x, memory, x_mask, memory_mask, norm, activation, randomise
):
    layer = built(make("layer", activation=activation, norm=norm), randomise)
    output = layer(x, memory, x_mask=x_mask, memory_mask=memory_mask)
    assert output.shape == (B, T, D)
    expected = oracle.decoder_layer(layer, x, memory, x_mask, memory_mask)
    oracle.assert_close(output, expected)


@norms
@pytest.mark.parametrize("masked", [False, True])
def test_decoder_equals_the_oracle(x, memory, x_mask, memory_mask, norm, masked, randomise):
    decoder = built(make("stack", norm=norm), randomise)
    masks = (x_mask, memory_mask) if masked else (None, None)
    output = decoder(x, memory, x_mask=masks[0], memory_mask=masks[1])
    assert output.shape == (B, T, D)
    expected = oracle.decoder(decoder, x, memory, *masks)
    oracle.assert_close(output, expected)


@kinds
@norms
@pytest.mark.parametrize("training", [False, True])
def test_no_output_sees_the_future(kind, norm, training, x, memory, rng, randomise, same_dropout):
    layer = built(make(kind, norm=norm, dropout=0.3), randomise)
    rewind = same_dropout(layer)
    for t in (0, T - 2):
        changed = x.copy()
        changed[:, t + 1 :] = rng.normal(size=changed[:, t + 1 :].shape)
        rewind()
        output = layer(x, memory, training=training).numpy()
        rewind()
        other = layer(changed, memory, training=training).numpy()
        oracle.assert_close(output[:, : t + 1], other[:, : t + 1])
        assert np.abs(output[:, t + 1 :] - other[:, t + 1 :]).max() > 1e-2


@kinds
@norms
def test_padding_of_target_and_memory_changes_nothing(kind, norm, x, memory, rng, randomise):
    layer = built(make(kind, norm=norm), randomise)
    longer_x = np.concatenate([x, rng.normal(size=(B, 4, D))], axis=1)
    longer_memory = np.concatenate([memory, rng.normal(size=(B, 3, D))], axis=1)
    output = layer(
        longer_x,
        longer_memory,
        x_mask=np.arange(T + 4)[None].repeat(B, 0) < T,
        memory_mask=np.arange(S + 3)[None].repeat(B, 0) < S,
    )
    oracle.assert_close(output[:, :T], layer(x, memory))


@kinds
def test_keras_masks_of_the_inputs_are_used(kind, x, memory, x_mask, memory_mask, randomise):
    layer = built(make(kind), randomise)
    x[~x_mask], memory[~memory_mask] = 0, 0
    expected = layer(x, memory, x_mask=x_mask, memory_mask=memory_mask)
    x, memory = (keras.layers.Masking()(values) for values in (x, memory))
    np.testing.assert_allclose(layer(x, memory), expected, atol=1e-6)
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(layer(x, memory)), x_mask)


@kinds
@norms
def test_wholly_padded_memory_is_finite_with_finite_gradient(kind, norm, x, memory, randomise):
    layer = built(make(kind, norm=norm), randomise)
    mask = np.ones((B, S), bool)
    mask[1] = False
    with tf.GradientTape() as tape:
        output = layer(x, memory, memory_mask=mask)
        loss = tf.reduce_sum(output**2)
    assert np.isfinite(output).all()
    gradients = tape.gradient(loss, layer.trainable_variables)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    oracle.assert_close(output[0], layer(x[:1], memory[:1])[0])


# The cached step.


def steps(decoder, beams, memory, memory_mask=None):
    """beams [B, W, T, D] through `step`, one position at a time: [B, W, T, D]."""
    projected = decoder.project_memory(memory)
    cache = decoder.empty_cache(B, W)
    assert cache[0][0].shape == (B, W, H, 0, D // H)
    outputs = []
    for t in range(T):
        output, cache = decoder.step(beams[:, :, t], projected, memory_mask, cache)
        assert output.shape == (B, W, D)
        assert all(part.shape == (B, W, H, t + 1, D // H) for pair in cache for part in pair)
        outputs.append(output.numpy())
    return np.stack(outputs, axis=2)


@norms
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
@pytest.mark.parametrize("masked", [False, True])
def test_cached_steps_equal_the_whole(
    norm, activation, masked, memory, memory_mask, rng, randomise
):
    decoder = built(make("stack", norm=norm, activation=activation), randomise)
    beams = rng.normal(size=(B, W, T, D)).astype("float32")
    mask = memory_mask if masked else None
    outputs = steps(decoder, beams, memory, mask)
    for w in range(W):
        whole = decoder(beams[:, w], memory, memory_mask=mask)
        oracle.assert_close(outputs[:, w], whole)


@norms
def test_cached_step_does_not_see_the_future_nor_other_beams(norm, memory, rng, randomise):
    decoder = built(make("stack", norm=norm), randomise)
    beams = rng.normal(size=(B, W, T, D)).astype("float32")
    changed = beams.copy()
    changed[:, 1, 3:] *= -1
    outputs, others = steps(decoder, beams, memory), steps(decoder, changed, memory)
    np.testing.assert_array_equal(outputs[:, [0, 2]], others[:, [0, 2]])
    np.testing.assert_array_equal(outputs[:, 1, :3], others[:, 1, :3])
    assert np.abs(outputs[:, 1, 3:] - others[:, 1, 3:]).max() > 1e-2


# What each layer must do.


@kinds
def test_keras_file_gives_the_same_outputs(kind, x, memory, memory_mask, randomise, reload):
    inputs = [
        keras.Input((None, D)),
        keras.Input((None, D)),
        keras.Input((None,), dtype="bool"),
    ]
    output = make(kind, norm="pre")(inputs[0], inputs[1], memory_mask=inputs[2])
    model = randomise(keras.Model(inputs, output))
    assert model.output_shape == (None, None, D)
    values = [x, memory, memory_mask]
    np.testing.assert_array_equal(reload(model)(values), model(values))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_cached_steps_stay_close_to_the_whole_in_mixed_precision(policy, memory, rng):
    decoder = make("stack", dtype=policy)
    dtype = policy.removeprefix("mixed_")
    beams = tf.cast(rng.normal(size=(B, W, T, D)), dtype)
    memory = tf.cast(memory, dtype)
    whole = decoder(beams[:, 1], memory)
    outputs = tf.cast(steps(decoder, beams, memory)[:, 1], "float32")
    np.testing.assert_allclose(outputs, tf.cast(whole, "float32"), atol=0.1)


def test_error_names_a_bad_number_of_layers():
    with pytest.raises(ValueError, match="num_layers must be an integer of at least 1, got 0"):
        Decoder(0, D, H, F)


@kinds
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 3}, "d_model=22 and num_heads=3"),
        ({"d_ff": 0}, "d_ff must be .* at least 1, got 0"),
        ({"activation": "tanh"}, "activation must be one of .* got 'tanh'"),
        ({"norm": "both"}, "norm must be one of .* got 'both'"),
    ],
)
def test_error_names_a_bad_argument(kind, change, message):
    with pytest.raises(ValueError, match=message):
        make(kind, **change)
