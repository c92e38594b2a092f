"""Token embedding: onehot(id) E sqrt(d_model), its mask, and the projection tied to it."""

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer import TokenEmbedding

V, D = 11, 7
IDS = np.array([[5, 10, 3, 0], [2, 1, 0, 0], [7, 3, 10, 10]])


def test_lookup_is_the_scaled_one_hot_product():
    # A vocabulary of 4 and vectors of width 3: the one-hot row of id 2 picks the third row.
    embedding = TokenEmbedding(4, 3)
    embedding.build()
    matrix = np.arange(12.0).reshape(4, 3)
    embedding.embeddings.assign(matrix)
    one_hot = np.array([0.0, 0, 1, 0])
    np.testing.assert_array_equal(one_hot @ matrix, [6, 7, 8])
    np.testing.assert_allclose(
        embedding(np.array([[2]]))[0, 0], np.sqrt(3) * (one_hot @ matrix), rtol=1e-6
    )


def test_embedding_equals_the_oracle():
    embedding = TokenEmbedding(V, D)
    output = embedding(IDS)
    assert output.shape == (3, 4, D)
    np.testing.assert_allclose(output, oracle.embed(embedding, IDS), atol=1e-6)


def test_tied_projection_is_x_times_the_transposed_matrix(rng):
    embedding = TokenEmbedding(V, D)
    embedding.build()
    x = rng.normal(size=(2, 5, D)).astype("float32")
    logits = embedding.project(x)
    assert logits.shape == (2, 5, V)
    oracle.assert_close(logits, x @ oracle.array(embedding.embeddings).T)


def test_embedded_vectors_start_with_variance_1():
    embedding = TokenEmbedding(997, 101)
    values = embedding(np.arange(997)[None]).numpy()
    assert abs(values.mean()) < 0.02
    assert abs(values.var() - 1) < 0.03


def test_output_carries_the_padding_mask():
    embedding = TokenEmbedding(V, D)
    np.testing.assert_array_equal(embedding.compute_mask(IDS), IDS != 0)
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(embedding(IDS)), IDS != 0)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32"])
def test_ids_of_any_exact_dtype(dtype):
    embedding = TokenEmbedding(V, D)
    np.testing.assert_allclose(
        embedding(IDS.astype(dtype)), oracle.embed(embedding, IDS), atol=1e-6
    )


def test_sequential_model_needs_no_input_layer():
    model = keras.Sequential([TokenEmbedding(V, D), keras.layers.Activation("linear")])
    np.testing.assert_allclose(model(IDS), oracle.embed(model.layers[0], IDS), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_ids_in_half_precision_are_refused(dtype):
    with pytest.raises(ValueError, match=f"ids must be integers, got dtype .*{dtype}"):
        TokenEmbedding(V, D)(tf.cast(IDS, dtype))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_tells_large_ids_apart(policy):
    size = 2**14 + 3
    embedding = TokenEmbedding(size, D, dtype=policy)
    ids = np.array([[size - 1, size - 2]])
    output = embedding(ids)
    dtype = policy.removeprefix("mixed_")
    assert output.dtype == dtype
    assert embedding.embeddings.dtype == "float32"
    expected = oracle.array(embedding.embeddings)[ids] * np.sqrt(D)
    np.testing.assert_allclose(keras.ops.cast(output, "float32"), expected, rtol=0.02)
    logits = embedding.project(output)
    assert logits.dtype == dtype
    assert np.isfinite(keras.ops.cast(logits, "float32")).all()


@pytest.mark.parametrize(
    ("size", "d_model", "message"),
    [
        (0, 7, "vocabulary_size must be an integer of at least 1, got 0"),
        (11, "7", "d_model must be an integer of at least 1, got '7'"),
    ],
)
def test_error_names_a_bad_size(size, d_model, message):
    with pytest.raises(ValueError, match=message):
        TokenEmbedding(size, d_model)
