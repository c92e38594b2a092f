"""Attention: a worked example, the NumPy oracle, no access to padding or to the future."""

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer import MultiHeadAttention, scaled_dot_product_attention
from tfformer.layers.attention import attention_weights

B, T, S, D, H = 2, 5, 7, 33, 3


@pytest.fixture
def layer(randomise):
    layer = MultiHeadAttention(D, H)
    layer.build((None, None, D))
    return randomise(layer)


@pytest.fixture
def query(rng):
    return rng.normal(size=(B, T, D)).astype("float32")


@pytest.fixture
def value(rng):
    return rng.normal(size=(B, S, D)).astype("float32")


@pytest.fixture
def query_mask():
    return np.arange(T) < np.array([[5], [3]])


@pytest.fixture
def value_mask():
    return np.arange(S) < np.array([[4], [7]])


# The function.


def test_causal_mask_zeroes_future_weights_in_an_example(rng):
    query, key = rng.normal(size=(2, 4, 6)).astype("float32")
    value = rng.normal(size=(4, 6)).astype("float32")
    weights = attention_weights(query, key, np.tri(4, dtype=bool)).numpy()
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones(4), rtol=1e-6)
    np.testing.assert_array_equal(weights[np.triu_indices(4, k=1)], 0)
    assert (weights[np.tril_indices(4)] > 0).all()
    output = scaled_dot_product_attention(query, key, value, np.tri(4, dtype=bool))
    np.testing.assert_allclose(output[0], value[0], rtol=1e-6)
    np.testing.assert_allclose(output, weights @ value, rtol=1e-5)


def test_scores_are_divided_by_the_root_of_the_key_size():
    # Scores 0 and 2 * ln(3) sqrt(4) / 2 / sqrt(4) = ln 3: weights 1/4 and 3/4.
    query = np.array([[2.0, 0, 0, 0]], "float32")
    key = np.array([[0.0, 0, 0, 0], [np.log(3), 0, 0, 0]], "float32")
    np.testing.assert_allclose(attention_weights(query, key), [[0.25, 0.75]], rtol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_function_equals_the_oracle(rng, masked):
    query = rng.normal(size=(B, H, T, 11)).astype("float32")
    key = rng.normal(size=(B, H, S, 11)).astype("float32")
    value = rng.normal(size=(B, H, S, 13)).astype("float32")
    mask = rng.random((B, 1, T, S)) < 0.6 if masked else None
    output = scaled_dot_product_attention(query, key, value, mask)
    assert output.shape == (B, H, T, 13)
    oracle.assert_close(output, oracle.attention(query, key, value, mask))


def test_fully_masked_row_is_zero_with_finite_gradient(rng):
    query, key, value = (
        tf.constant(rng.normal(size=size), tf.float32) for size in [(T, 11), (S, 11), (S, 13)]
    )
    mask = np.ones((T, S), bool)
    mask[2] = False
    with tf.GradientTape() as tape:
        tape.watch([query, key, value])
        output = scaled_dot_product_attention(query, key, value, mask)
    np.testing.assert_array_equal(output[2], np.zeros(13))
    gradients = tape.gradient(output, [query, key, value])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_array_equal(gradients[0][2], np.zeros(11))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_are_float32_and_the_output_has_the_dtype_of_the_values(rng, dtype):
    query, value = (keras.ops.cast(rng.normal(size=(n, 11)), dtype) for n in (T, S))
    weights = attention_weights(query, value)
    assert weights.dtype == "float32"
    # Closer to 1 than either half precision can hold for sums of several weights.
    np.testing.assert_allclose(np.sum(weights, axis=-1), np.ones(T), atol=1e-6)
    assert scaled_dot_product_attention(query, value, value).dtype == dtype


# The layer.


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_self_attention_equals_the_oracle(layer, query, query_mask, causal, masked):
    mask = query_mask if masked else None
    allowed = oracle.self_mask(mask, T, causal)
    output = layer(query, mask=mask, causal=causal)
    assert output.shape == (B, T, D)
    expected = oracle.multi_head_attention(layer, query, mask=allowed)
    oracle.assert_close(output, expected)


@pytest.mark.parametrize("masked", [False, True])
def test_cross_attention_equals_the_oracle(layer, query, value, value_mask, masked):
    mask = value_mask if masked else None
    output = layer(query, value, value_mask=mask)
    assert output.shape == (B, T, D)
    allowed = value_mask[:, None, :] if masked else None
    expected = oracle.multi_head_attention(layer, query, value, allowed)
    oracle.assert_close(output, expected)


def test_attention_weights_equal_the_oracle_and_sum_to_one(layer, query, value, value_mask):
    weights = layer.attention_weights(query, value, value_mask=value_mask).numpy()
    assert weights.shape == (B, H, T, S)
    expected = oracle.head_weights(layer, query, value, value_mask[:, None, :])
    oracle.assert_close(weights, expected)
    np.testing.assert_allclose(weights.sum(axis=-1), np.ones((B, H, T)), rtol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_causal_output_does_not_see_the_future(query, rng, randomise, same_dropout, training):
    layer = MultiHeadAttention(D, H, dropout=0.3)
    layer.build(query.shape)
    randomise(layer)
    rewind = same_dropout(layer)
    for t in range(T - 1):
        changed = query.copy()
        changed[:, t + 1 :] = rng.normal(size=changed[:, t + 1 :].shape)
        outputs = []
        for x in (query, changed):
            rewind()
            outputs.append(layer(x, causal=True, training=training).numpy())
        np.testing.assert_allclose(outputs[0][:, : t + 1], outputs[1][:, : t + 1], atol=1e-6)
        assert np.abs(outputs[0][:, t + 1 :] - outputs[1][:, t + 1 :]).max() > 1e-2


def test_dropout_acts_in_training_only(query):
    layer = MultiHeadAttention(D, H, dropout=0.5)
    assert np.abs(layer(query, training=True) - layer(query, training=False)).max() > 1e-3
    np.testing.assert_array_equal(layer(query, training=False), layer(query))


def test_padding_after_the_values_changes_nothing(layer, query, value, rng):
    mask = np.ones((B, S), bool)
    longer = np.concatenate([value, rng.normal(size=(B, 4, D)).astype("float32")], axis=1)
    longer_mask = np.concatenate([mask, np.zeros((B, 4), bool)], axis=1)
    np.testing.assert_allclose(
        layer(query, longer, value_mask=longer_mask),
        layer(query, value, value_mask=mask),
        atol=1e-5,
    )


def test_keras_masks_of_the_inputs_are_used(layer, query, value, query_mask, value_mask):
    query[~query_mask], value[~value_mask] = 0, 0
    query, value = (keras.layers.Masking()(x) for x in (query, value))
    np.testing.assert_allclose(layer(query), layer(query.numpy(), mask=query_mask), atol=1e-6)
    np.testing.assert_allclose(
        layer(query, value),
        layer(query.numpy(), value.numpy(), value_mask=value_mask),
        atol=1e-6,
    )


def test_wholly_padded_row_is_the_bias_with_finite_gradient(layer, query, value):
    mask = np.zeros((B, S), bool)
    with tf.GradientTape() as tape:
        output = layer(query, value, value_mask=mask)
    bias = layer.output_projection.bias.numpy()
    np.testing.assert_allclose(output, np.broadcast_to(bias, (B, T, D)), atol=1e-6)
    gradients = tape.gradient(output, layer.trainable_variables)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_self_attention_combines_mask_and_value_mask(layer, query, query_mask):
    other = np.arange(T) != 1
    output = layer(query, mask=query_mask, value_mask=np.tile(other, (B, 1)))
    allowed = (query_mask & other)[:, None]
    oracle.assert_close(output, oracle.multi_head_attention(layer, query, mask=allowed))


@pytest.mark.parametrize("causal", [False, True])
def test_mask_of_pairs_is_applied_in_self_attention(layer, query, query_mask, causal, rng):
    """Together with the padding of the keys and with the causal mask, if given."""
    pairs = rng.random((B, T, T)) < 0.6
    future = np.tri(T, dtype=bool) if causal else True
    output = layer(query, mask=pairs, causal=causal)
    oracle.assert_close(output, oracle.multi_head_attention(layer, query, mask=pairs & future))
    output = layer(query, mask=pairs, value_mask=query_mask, causal=causal)
    allowed = pairs & future & query_mask[:, None]
    oracle.assert_close(output, oracle.multi_head_attention(layer, query, mask=allowed))


def test_mask_of_pairs_is_applied_in_cross_attention(layer, query, value, value_mask, rng):
    pairs = rng.random((B, T, S)) < 0.6
    output = layer(query, value, mask=pairs, value_mask=value_mask)
    assert output.shape == (B, T, D)
    allowed = pairs & value_mask[:, None]
    oracle.assert_close(output, oracle.multi_head_attention(layer, query, value, allowed))
    weights = layer.attention_weights(query, value, mask=pairs, value_mask=value_mask)
    oracle.assert_close(weights, oracle.head_weights(layer, query, value, allowed))
    # One mask for all sentences, one for all queries.
    for mask in (pairs[:1], pairs[:, :1]):
        expected = oracle.multi_head_attention(layer, query, value, mask)
        oracle.assert_close(layer(query, value, mask=mask), expected)


def test_query_padding_changes_nothing_in_cross_attention(layer, query, value, query_mask):
    np.testing.assert_array_equal(layer(query, value, mask=query_mask), layer(query, value))


@pytest.mark.parametrize("shape", [(T,), (B, S), (B, S, T), (B, T, T), (B, 1, T, S)])
def test_a_mask_of_another_shape_is_refused(layer, query, value, shape):
    message = rf"mask must be \[B, T\] or \[B, T, S\] with T = {T} and S = {S}, got \({shape[0]},"
    with pytest.raises(ValueError, match=message):
        layer(query, value, mask=np.ones(shape, bool))


@pytest.mark.parametrize("shape", [(B,), (B, T), (B, S, 1), (B + 1, S)])
def test_a_value_mask_of_another_shape_is_refused(layer, query, value, shape):
    with pytest.raises(ValueError, match=r"value_mask must be \[B, T\] for an input of .*, got"):
        layer(query, value, value_mask=np.ones(shape, bool))


def test_causal_attention_to_a_sequence_of_another_length_is_refused(layer, query, value):
    with pytest.raises(ValueError, match="value must be as long as query with causal=True, got"):
        layer(query, value, causal=True)
    # Unknown lengths may turn out to be equal.
    inputs = keras.Input((None, D)), keras.Input((T, D))
    assert layer(*inputs, causal=True).shape == (None, None, D)


@pytest.mark.parametrize(
    ("d_model", "num_heads", "message"),
    [
        (33, 2, "d_model=33 and num_heads=2"),
        (0, 1, "d_model must be an integer of at least 1, got 0"),
        (33, 0, "num_heads must be an integer of at least 1, got 0"),
        (-6, 3, "d_model must be an integer of at least 1, got -6"),
        ("33", 3, "d_model must be an integer of at least 1, got '33'"),
        (33.0, 3, "d_model must be an integer of at least 1, got 33.0"),
    ],
)
def test_error_names_a_bad_size(d_model, num_heads, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(d_model, num_heads)


@pytest.mark.parametrize("dropout", ["0.1", 1, -0.1, None])
def test_error_names_a_bad_dropout(dropout):
    with pytest.raises(ValueError, match=r"dropout must be a number in \[0, 1\), got "):
        MultiHeadAttention(D, H, dropout=dropout)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("key_dim", "give d_model"),
        ("d_modle", "did you mean d_model"),
        ("rate", "it has .'d_model', 'num_heads', 'dropout'"),
    ],
)
def test_unknown_argument_error_suggests_the_intended_one(name, hint):
    with pytest.raises(TypeError, match=f"MultiHeadAttention has no argument {name}: {hint}"):
        MultiHeadAttention(D, H, **{name: 7})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("key", "keys and values are both made of value"),
        ("attention_mask", r"give it as mask, \[B, T, S\]"),
        ("use_causal_mask", "give causal=True"),
        ("return_attention_scores", "attention_weights"),
        ("casual", "did you mean causal"),
    ],
)
def test_unknown_call_argument_error_suggests_the_intended_one(layer, query, name, hint):
    with pytest.raises(TypeError, match=f"MultiHeadAttention has no argument {name}: {hint}"):
        layer(query, **{name: query})


def test_query_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"d_model = 33, got .*31"):
        MultiHeadAttention(D, H)(np.zeros((B, T, 31)))
