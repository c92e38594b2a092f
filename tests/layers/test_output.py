"""The output layers: a bias is added, and a pointer-generator computes its mixture."""

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer.layers.embedding import TokenEmbedding
from tfformer.layers.output import Dense, PointerGenerator

B, T, S, D, V = 2, 3, 7, 11, 13
# Words at several positions, padding, and a row of one word.
IDS = np.array([[5, 9, 5, 5, 12, 9, 3], [8, 3, 0, 0, 0, 0, 0]])


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, T, D)).astype("float32")


@pytest.fixture
def attention(rng):
    """[B, T, S]; each row sums to 1, and padding has 0."""
    weights = np.exp(rng.normal(size=(B, T, S))) * (IDS != 0)[:, None]
    return (weights / weights.sum(axis=-1, keepdims=True)).astype("float32")


def made(randomise, gate=None, **options):
    """A layer with random weights; a given gate is closed or open at each position."""
    layer = PointerGenerator(V, **options)
    layer.build((None, None, D))
    randomise(layer)
    if gate is not None:
        layer.gate.set_weights([np.zeros((D, 1)), np.array([gate])])
    return layer


def attended(attention):
    """The attention to each id, summed over its positions by other code."""
    return np.einsum("bts,bsv->btv", attention, np.eye(V)[IDS])


def test_mixture_equals_a_loop_over_positions(x, attention, randomise):
    layer = made(randomise, use_bias=True)
    logits = layer(x, attention=attention, source_ids=IDS[:, None])
    assert logits.shape == (B, T, V) and logits.dtype == "float32"
    gate = oracle.sigmoid(oracle.dense(layer.gate, x))
    generated = oracle.softmax(oracle.dense(layer, x))
    expected = oracle.pointer_generator(gate, generated, attention, IDS)
    np.testing.assert_allclose(tf.exp(logits), expected, atol=1e-6)
    np.testing.assert_allclose(tf.reduce_sum(tf.exp(logits), axis=-1), 1, rtol=1e-5)
    # So they can be used as logits.
    np.testing.assert_allclose(tf.nn.softmax(logits), tf.exp(logits), rtol=1e-5)


def test_open_gate_generates_and_closed_gate_copies(x, attention, randomise):
    seen = {"attention": attention, "source_ids": IDS[:, None]}
    layer = made(randomise, gate=99.0)
    expected = tf.nn.log_softmax(Dense.call(layer, tf.constant(x)))
    np.testing.assert_allclose(layer(x, **seen), expected, atol=1e-5, rtol=1e-5)
    found = tf.exp(made(randomise, gate=-99.0)(x, **seen))
    np.testing.assert_allclose(found, attended(attention), atol=1e-6)


def test_gradients_are_finite_where_nothing_is_copied(x, attention, randomise):
    layer = made(randomise)
    with tf.GradientTape() as tape:
        given = tf.constant(attention)
        tape.watch(given)
        logits = layer(x, attention=given, source_ids=IDS[:, None])
        loss = -tf.reduce_sum(logits[:, :, 4]) - tf.reduce_sum(logits[:, :, 5])
    for gradient in tape.gradient(loss, [given, *layer.trainable_variables]):
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


def test_tied_layer_uses_the_transposed_embedding(x, attention, randomise):
    embedding = TokenEmbedding(V, D)
    embedding.build((None, None))
    randomise(embedding)
    layer = made(randomise, gate=99.0, tied=True)
    logits = layer(x, embedding=embedding, attention=attention, source_ids=IDS[:, None])
    assert len(layer.weights) == 2
    expected = oracle.softmax(x @ oracle.array(embedding.embeddings).T)
    np.testing.assert_allclose(tf.exp(logits), expected, atol=1e-6)


def test_in_mixed_precision_its_logits_are_float32(x, attention):
    layer = PointerGenerator(V, dtype="mixed_bfloat16")
    logits = layer(x, attention=attention, source_ids=IDS[:, None])
    assert logits.dtype == "float32"
    np.testing.assert_allclose(tf.reduce_sum(tf.exp(logits), axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("missing", ["attention", "source_ids"])
def test_missing_attention_or_source_ids_is_refused(x, attention, missing):
    seen = {"attention": attention, "source_ids": IDS[:, None]}
    del seen[missing]
    message = f"attention and source_ids must be given .* got no {missing}"
    with pytest.raises(ValueError, match=message):
        PointerGenerator(V)(x, **seen)


def test_layer_is_restored_from_its_configuration(x):
    layer = PointerGenerator(V, use_bias=True, name="pointer")
    again = PointerGenerator.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    stored = keras.saving.serialize_keras_object(layer)
    assert isinstance(keras.saving.deserialize_keras_object(stored), PointerGenerator)
