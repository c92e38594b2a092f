"""Masks are boolean, True = may be attended to. Padding is never seen, and with a causal mask no
later token."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfformer.layers.masks import attention_mask, causal_mask, check_mask, padding_mask

IDS = np.array([[5, 7, 0, 0, 0], [2, 3, 11, 13, 1], [0, 0, 0, 0, 0]])


def test_padding_mask_is_true_at_tokens():
    mask = padding_mask(IDS).numpy()
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, IDS != 0)


def test_causal_mask_is_the_lower_triangle_with_its_diagonal():
    mask = causal_mask(7).numpy()
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, np.tri(7, dtype=bool))


def test_causal_mask_of_a_length_known_only_in_the_graph():
    mask = tf.function(causal_mask, input_signature=[tf.TensorSpec((), tf.int32)])
    np.testing.assert_array_equal(mask(tf.constant(3)), np.tri(3, dtype=bool))
    np.testing.assert_array_equal(mask(tf.constant(5)), np.tri(5, dtype=bool))


def test_attention_mask_without_arguments_is_none():
    assert attention_mask() is None


def test_padding_alone_broadcasts_over_heads_and_queries():
    mask = attention_mask(padding_mask(IDS))
    assert mask.shape == (3, 1, 1, 5)
    np.testing.assert_array_equal(np.broadcast_to(mask, (3, 2, 7, 5))[:, 1, 6], IDS != 0)


def test_causal_mask_alone_is_a_lower_triangle():
    np.testing.assert_array_equal(attention_mask(causal_length=5), np.tri(5, dtype=bool))


def test_padding_and_causal_masks_are_combined():
    mask = attention_mask(padding_mask(IDS), causal_length=5)
    expected = np.tri(5, dtype=bool)[None] & (IDS != 0)[:, None, :]
    assert mask.shape == (3, 1, 5, 5)
    np.testing.assert_array_equal(mask[:, 0], expected)


def test_pair_mask_is_combined_with_padding_and_causal_masks(rng):
    pairs = rng.random((3, 5, 5)) < 0.5
    mask = attention_mask(padding_mask(IDS), 5, pairs)
    expected = pairs & (IDS != 0)[:, None] & np.tri(5, dtype=bool)
    np.testing.assert_array_equal(mask, expected[:, None])


def test_a_padding_mask_may_be_a_list_or_of_unknown_rank():
    x = keras.ops.ones((2, 3, 4))
    found = check_mask("mask", [[True, True, False], [True, False, False]], x)
    np.testing.assert_array_equal(found, [[True, True, False], [True, False, False]])
    with pytest.raises(ValueError, match=r"mask must be \[B, T\] .* got \(1, 2\)"):
        check_mask("mask", [[True, True]], x)
    assert check_mask("mask", None, x) is None

    @tf.function(input_signature=[tf.TensorSpec(None, tf.bool)])
    def checked(mask):
        return check_mask("mask", mask, x)

    np.testing.assert_array_equal(checked(np.ones((2, 3), bool)), np.ones((2, 3), bool))


def test_a_mask_of_numbers_is_taken_as_boolean():
    mask = attention_mask(keras.ops.cast(IDS != 0, "float32"))
    np.testing.assert_array_equal(mask[:, 0, 0], IDS != 0)
