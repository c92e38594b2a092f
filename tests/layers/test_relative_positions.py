"""Angles, slopes and buckets, by hand and compared with other implementations; only distances
count."""

import math

import keras
import numpy as np
import oracle
import oracle_places
import pytest
import tensorflow as tf
from keras_hub.layers import AlibiBias, RotaryEmbedding
from keras_hub.src.models.t5.t5_multi_head_attention import T5MultiHeadAttention

from tfformer import EncoderLayer, MultiHeadAttention
from tfformer.layers.relative_positions import Alibi, RelativeBias, Rotary, between, places_of

B, H, T, K, D = 2, 3, 7, 10, 30
KINDS = ("rotary", "alibi", "relative")
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def heads(rng):
    return rng.normal(size=(B, H, T, K)).astype("float32")


def test_rotary_turns_each_pair_by_its_angle():
    """K = 4: the second pair turns by 10000^(-2/4) = 1/100 for each position."""
    x = np.tile([1.0, 0.0], 2)[None].repeat(3, axis=0)
    angles = np.outer([0, 1, 5], [1, 0.01])
    expected = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(3, 4)
    np.testing.assert_allclose(Rotary(4).turned(x, np.array([0, 1, 5])), expected, atol=1e-6)


def test_rotary_positions_equal_keras_hub(heads):
    """KerasHub rotates feature i with feature i + K / 2; ours, as in the paper, with its
    neighbour."""
    ours = Rotary(K).turned(heads, np.arange(T))
    halves = np.concatenate([heads[..., 0::2], heads[..., 1::2]], axis=-1)
    theirs = RotaryEmbedding(sequence_axis=2)(halves).numpy()
    np.testing.assert_allclose(ours[..., 0::2], theirs[..., : K // 2], atol=1e-5)
    np.testing.assert_allclose(ours[..., 1::2], theirs[..., K // 2 :], atol=1e-5)


def test_extended_rotary_frequencies_follow_llama():
    """Fast pairs are unchanged, slow ones are divided, those between are interpolated."""
    options = {"base": 50.0, "factor": 8.0, "length": 100}
    x = np.tile([1.0, 0.0], K // 2)[None, None].repeat(T, axis=1)
    expected = oracle_places.turned(x, **options)
    np.testing.assert_allclose(Rotary(K, **options).turned(x, np.arange(T)), expected, atol=1e-5)
    of_one = [oracle_places.frequency(50.0 ** (-2 * i / K), 8.0, 100) for i in range(K // 2)]
    ratios = np.array(of_one) / 50.0 ** (-2 * np.arange(K // 2) / K)
    assert ratios[0] == 1 and ratios[-1] == 1 / 8 and 1 / 8 < ratios[2] < 1


@pytest.mark.parametrize("shift", [1, 13])
def test_rotary_scores_depend_only_on_the_distance(heads, shift):
    rotary, positions = Rotary(K), np.arange(T)
    queries, keys = heads, heads[::-1]

    def scores(start):
        turned = (rotary.turned(x, positions + start) for x in (queries, keys))
        return np.matmul(*(np.swapaxes(x, -1, -2) if n else x for n, x in enumerate(turned)))

    np.testing.assert_allclose(scores(shift), scores(0), atol=1e-4)
    assert np.abs(scores(0) - queries @ np.swapaxes(keys, -1, -2)).max() > 0.1


def test_alibi_slopes_equal_the_paper():
    """For 8 heads: 1/2, 1/4, ..., 1/256."""
    np.testing.assert_allclose(Alibi(8).slopes.ravel(), [2.0**-n for n in range(1, 9)])


@pytest.mark.parametrize("num_heads", [2, 8])
def test_alibi_weights_equal_keras_hub(num_heads):
    """KerasHub adds the same value to all scores of a query, which the softmax removes."""
    zeros = np.zeros((1, num_heads, T, T), "float32")
    mask = np.tril(np.ones((T, T), bool))
    ours = zeros + Alibi(num_heads).bias(np.arange(T), np.arange(T), causal=True)
    weights = [oracle.softmax(np.where(mask, x, -1e9)) for x in (ours, AlibiBias()(zeros).numpy())]
    np.testing.assert_allclose(*weights, atol=1e-6)


def test_alibi_uses_reversed_slopes_for_later_positions():
    bias = Alibi(H).bias(np.arange(T), np.arange(T), causal=False).numpy()
    np.testing.assert_array_equal(np.triu(bias), np.triu(np.swapaxes(bias[::-1], 1, 2)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "maximum"), [(32, 128), (8, 20)])
def test_relative_buckets_equal_t5(causal, buckets, maximum):
    distances = np.arange(-3 * maximum, 1 if causal else 3 * maximum, dtype="int32")
    theirs = T5MultiHeadAttention._relative_position_bucket(
        keras.ops.convert_to_tensor(distances), not causal, buckets, maximum
    )
    ours = RelativeBias(H, buckets, maximum).buckets(distances, causal)
    np.testing.assert_array_equal(ours, theirs)
    assert 0 <= ours.min() and ours.max() == buckets - 1


def test_relative_bias_is_looked_up_by_bucket_and_head(randomise):
    layer = RelativeBias(H, 8, 20)
    layer.build()
    randomise(layer)
    bias = layer.bias(np.array([1, 4]), np.arange(T), causal=False)
    assert bias.shape == (H, 2, T)
    table = layer.table.numpy()
    for n, i in enumerate((1, 4)):
        for j in range(T):
            bucket = oracle_places.bucket(j - i, False, 8, 20)
            np.testing.assert_allclose(bias[:, n, j], table[bucket])


def test_distances_beyond_the_last_bucket_share_one_bias(randomise):
    layer = RelativeBias(H, 8, 20)
    layer.build()
    bias = randomise(layer).bias(np.array([0]), np.array([20, 21, 5000]), causal=False).numpy()
    np.testing.assert_array_equal(bias[..., 0], bias[..., 1])
    np.testing.assert_array_equal(bias[..., 0], bias[..., 2])


@kinds
def test_relative_positions_detect_order_but_ignore_leading_padding(kind, rng, randomise):
    """Attention without positions ignores the order. With these, exchanged words change the
    result, and a text that begins later in a row does not."""
    x = rng.normal(size=(B, T, D)).astype("float32")
    turned = x[:, ::-1].copy()
    layers = [EncoderLayer(D, H, 11, attention_positions=name) for name in ("none", kind)]
    for layer, sees in zip(layers, (False, True), strict=True):
        layer(x)
        y, of_turned = randomise(layer)(x).numpy(), layer(turned).numpy()
        assert (np.abs(of_turned[:, ::-1] - y).max() > 1e-2) == sees
    late = np.pad(x, ((0, 0), (5, 0), (0, 0)))
    mask = np.arange(T + 5)[None].repeat(B, axis=0) >= 5
    np.testing.assert_allclose(layers[1](late, mask=mask)[:, 5:], y, atol=1e-4)


@kinds
@pytest.mark.parametrize("training", [False, True])
def test_no_position_sees_a_later_one(kind, training, rng, randomise, same_dropout):
    x = rng.normal(size=(B, T, D)).astype("float32")
    layer = EncoderLayer(D, H, 11, attention_positions=kind, attention_dropout=0.3)
    layer(x)
    rewind = same_dropout(randomise(layer))
    y = layer(x, causal=True, training=training).numpy()
    changed = x.copy()
    changed[:, 4:] += 1
    rewind()
    other = layer(changed, causal=True, training=training).numpy()
    oracle.assert_close(other[:, :4], y[:, :4])
    assert np.abs(other[:, 4:] - y[:, 4:]).max() > 1e-2


@kinds
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_close_to_float32(kind, policy, rng):
    x = rng.normal(size=(B, T, D)).astype("float32")
    whole, half = (
        EncoderLayer(D, H, 11, attention_positions=kind, dtype=d) for d in (None, policy)
    )
    expected = whole(x)
    half(x)
    half.set_weights(whole.get_weights())
    assert half(x).dtype == policy.removeprefix("mixed_")
    np.testing.assert_allclose(tf.cast(half(x), tf.float32), expected, atol=0.1)
    assert all(variable.dtype == "float32" for variable in half.trainable_variables)


def test_distance_is_key_minus_query_position():
    assert between(np.array([0, 2]), np.array([0, 1])).numpy().tolist() == [[0, 1], [-2, -1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotary(7), "head_size must be even, got 7"),
        (lambda: RelativeBias(H, 6), "num_buckets must be a multiple of 4, got 6"),
        (lambda: RelativeBias(H, 8, 4), "max_distance must be more than half of num_buckets, got"),
        (lambda: Rotary(6, base=0.5), r"base must be a number in \[1, inf\), got 0.5"),
        (lambda: Rotary(6, factor=0), r"factor must be a number in \[1, inf\), got 0"),
        (lambda: places_of("sinus", H, K, {}), "positions must be one of none, .* got 'sinus'"),
        (lambda: EncoderLayer(21, 3, 11, attention_positions="rotary"), "even multiple .* rotary"),
        (
            lambda: MultiHeadAttention(D, H, positions="alibi")(
                np.ones((1, 2, D)), np.ones((1, 2, D))
            ),
            "value must be query itself with positions='alibi'",
        ),
    ],
)
def test_error_names_a_bad_option(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_rotary_angles_of_far_positions_are_computed_in_float32(rng):
    """bfloat16 does not have all integers beyond 256."""
    x = np.array([[1.0, 0.0]])
    turned = Rotary(2).turned(tf.cast(x, tf.bfloat16), np.array([1001]))
    np.testing.assert_allclose(tf.cast(turned, tf.float32)[0, 0], math.cos(1001), atol=5e-3)
