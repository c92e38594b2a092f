"""Each inference layer gives the output of its layer to 1e-5; a shared layer is fused once."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfformer.config import ACTIVATIONS
from tfformer.inference.fuse import INFERENCE_LAYERS, Fusing, fuse
from tfformer.inference.masks import attention_bias, causal_bias, padding_bias
from tfformer.inference.transformer import Inference
from tfformer.layers import masks
from tfformer.layers.attention import MultiHeadAttention
from tfformer.layers.decoder import Decoder, DecoderLayer
from tfformer.layers.embedding import TokenEmbedding, TokenTypes
from tfformer.layers.encoder import Encoder, EncoderLayer
from tfformer.layers.feed_forward import FeedForward
from tfformer.layers.length import LengthPredictor
from tfformer.layers.location import Location
from tfformer.layers.norm import AdaNorm, BatchNorm, LayerNorm, RMSNorm, SimpleNorm
from tfformer.layers.output import Dense, PointerGenerator, Transform
from tfformer.layers.overlapping_windows import Pieces, Recurrence
from tfformer.layers.pooling import Pooling
from tfformer.layers.positions import (
    LearnedPositionalEmbedding,
    NoPositions,
    SinusoidalPositionalEncoding,
)
from tfformer.layers.relative_positions import Alibi, RelativeBias, Rotary
from tfformer.layers.residual import Residual
from tfformer.layers.upsampling import Upsampling
from tfformer.models.transformer import Transformer, TransformerConfig

B, S, T, D, H, V, L = 2, 5, 3, 14, 7, 11, 13
SIZES = {"d_model": D, "num_heads": H, "d_ff": 17}
MASK = np.array([[True] * S, [True] * 2 + [False] * (S - 2)])
PADDING = attention_bias(MASK)[:, None, None]
IDS = np.array([[7, 6, 5, 4, 3], [9, 3, 0, 0, 0]])
CAUSAL = attention_bias(np.tril(np.ones((T, T), bool)))


def rows(x):
    return tf.reshape(x, [-1, x.shape[-1]])


def causal(inference_layer, w):
    """The causal attention of an inference layer over a whole target."""
    return lambda q, k, v, n=0: inference_layer.attend(w, q, k, v, CAUSAL, causal=True)


def encoder_case(layer, x, memory):
    return layer(memory, mask=MASK), lambda inference_layer, w: inference_layer(
        w, rows(memory), B, S, inference_layer.sees(w, PADDING)
    )


def encoder_layer_case(layer, x, memory):
    def by_inference_layer(inference_layer, w):
        attend = inference_layer.self_attention.attend
        return inference_layer(w, rows(memory), B, S, lambda *heads: attend(w, *heads, PADDING))

    return layer(memory, mask=MASK), by_inference_layer


def decoder_layer_case(layer, x, memory):
    def by_inference_layer(inference_layer, w):
        keys, values = layer.cross_attention.keys_and_values(memory)
        attend = causal(inference_layer.self_attention, w)
        return inference_layer(w, rows(x), B, T, attend, (keys, values, PADDING))[0]

    return layer(x, memory, memory_mask=MASK), by_inference_layer


def decoder_case(layer, x, memory):
    def by_inference_layer(inference_layer, w):
        keys, values = inference_layer.project(w, rows(memory), B, S)
        kept = {"keys": keys, "values": values, "bias": PADDING}
        attend = causal(inference_layer.layers[0].self_attention, w)
        return inference_layer(w, rows(x), B, T, attend, kept)[0]

    return layer(x, memory, memory_mask=MASK), by_inference_layer


def attention_case(layer, x, memory):
    return layer(x, causal=True), lambda inference_layer, w: inference_layer(
        w, rows(x), B, T, causal(inference_layer, w)
    )


def places_case(layer, x, memory):
    """Queries at three positions, the last ones, and the bias of their scores."""
    if not layer.built:
        layer.build(None)
    queries = tf.reshape(memory, [B, S, H, D // H])
    queries = tf.transpose(queries, [0, 2, 1, 3])  # [B, H, S, K]
    positions, last = np.arange(S), np.array([S - 1])

    def flat(turned, of_last, *biases):
        return tf.concat([tf.reshape(x, [-1]) for x in (turned, of_last, *biases)], 0)[None]

    none = tf.zeros([1, H, S, S])
    biases = [layer.bias(positions, positions, causal) for causal in (False, True)]
    expected = flat(
        layer.turned(queries, positions),
        layer.turned(queries[:, :, -1:], last),
        *[none if bias is None else none + bias for bias in biases],
        none[:, :, -1] if biases[1] is None else none[:, :, -1] + biases[1][None, :, -1],
    )

    def by_inference_layer(inference_layer, w):
        at, start = tf.constant(positions, tf.int32), tf.constant(S - 1)
        return flat(
            inference_layer.turned(w, queries, at),
            inference_layer.turned(w, queries[:, :, -1:], start),
            *[inference_layer.added(w, none, at, at, causal) for causal in (False, True)],
            inference_layer.added(w, none[:, :, -1:], start[None], at, True),
        )

    return expected, by_inference_layer


def location_case(layer, x, memory):
    """With the weights of the layer below, and with uniform ones."""
    below = tf.nn.softmax(tf.reshape(memory[:, :, : T * 4], [B, 4, T, S]))
    real = np.broadcast_to(MASK[:, None, None], below.shape).astype("float32")
    real /= real.sum(axis=-1, keepdims=True)
    expected = tf.concat([layer(below), layer(real[:, :, :1])], axis=2)
    return tf.reshape(expected, [1, -1]), lambda inference_layer, w: tf.reshape(
        tf.concat([inference_layer(w, below, PADDING), inference_layer(w, None, PADDING)], axis=2),
        [1, -1],
    )


def plain_case(layer, x, memory):
    return layer(x), lambda inference_layer, w: inference_layer(w, rows(x))


def pointer_case(layer, x, memory):
    attention = tf.nn.softmax(memory[:, None, :, 0] * x[:, :, None, 0])  # [B, T, S]
    ids = tf.constant([[5, 9, 5, 3, 0], [4, 3, 0, 0, 0]])
    of_rows = tf.repeat(ids, T, axis=0)  # [B * T, S]
    expected = layer(x, attention=attention, source_ids=ids[:, None])
    return expected, lambda inference_layer, w: inference_layer(
        w, rows(x), rows(attention), of_rows
    )


def length_case(layer, x, memory):
    return layer(memory, mask=MASK), lambda inference_layer, w: inference_layer(
        w, rows(memory), MASK
    )


def pooling_case(layer, x, memory):
    return layer(memory, mask=MASK), lambda inference_layer, w: inference_layer(
        w, rows(memory), tf.constant(MASK)
    )


def pieces_case(layer, x, memory):
    def flat(pieces):
        ids, real = pieces
        return tf.concat([tf.reshape(ids, [1, -1]), tf.cast(real[:1], ids.dtype)], axis=1)

    return flat(layer(IDS)), lambda inference_layer, w: flat(inference_layer(w, tf.constant(IDS)))


def recurrence_case(layer, x, memory):
    return layer(memory, mask=MASK), lambda inference_layer, w: inference_layer(
        w, memory, tf.constant(MASK)
    )


def residual_case(layer, x, memory):
    return layer(x, sublayer=tf.tanh), lambda inference_layer, w: inference_layer(
        w, rows(x), tf.tanh
    )


def embedding_case(layer, x, memory):
    ids = np.array([[5, 4, 3], [6, 2, 1]])
    return layer(ids), lambda inference_layer, w: inference_layer(w, ids.ravel(), tf.zeros([1, D]))


def token_types_case(layer, x, memory):
    types = np.array([[0, 1, 1], [1, 0, 0]])

    def by_inference_layer(inference_layer, w):
        return rows(x) + inference_layer(w, types)

    return layer(x, types), by_inference_layer


def positions_case(layer, x, memory):
    expected = layer(x) - x
    return expected, lambda inference_layer, w: tf.tile(inference_layer.table(w)[:T], [B, 1])


CASES = {
    **{kind.__name__: (kind, lambda kind=kind: kind(1e-3), plain_case)
       for kind in (LayerNorm, SimpleNorm, AdaNorm, RMSNorm, BatchNorm)},
    "without a residual": (Residual, lambda: Residual(residual=False), residual_case),
    "post-norm": (Residual, lambda: Residual(norm="post"), residual_case),
    "pre-norm": (Residual, lambda: Residual(norm="pre"), residual_case),
    **{name: (FeedForward, lambda name=name: FeedForward(D, 17, name), plain_case)
       for name in ACTIVATIONS},
    "upsampling": (Upsampling, lambda: Upsampling(D, 3), plain_case),
    "length": (LengthPredictor, lambda: LengthPredictor(5), length_case),
    "attention": (MultiHeadAttention, lambda: MultiHeadAttention(D, H), attention_case),
    "two heads of seven share keys": (
        MultiHeadAttention, lambda: MultiHeadAttention(D, 14, num_key_value_heads=7), attention_case
    ),
    "rotary": (Rotary, lambda: Rotary(D // H), places_case),
    "rotary, extended": (Rotary, lambda: Rotary(D // H, 50.0, 8.0, 100), places_case),
    "alibi": (Alibi, lambda: Alibi(H), places_case),
    "relative": (RelativeBias, lambda: RelativeBias(H, 8, 5), places_case),
    "no positions": (NoPositions, lambda: NoPositions(D), positions_case),
    "location": (Location, lambda: Location(4, 3), location_case),
    "embedding": (TokenEmbedding, lambda: TokenEmbedding(V, D), embedding_case),
    "token types": (TokenTypes, lambda: TokenTypes(2, D), token_types_case),
    "transform": (Transform, lambda: Transform(D), plain_case),
    "sinusoids": (
        SinusoidalPositionalEncoding, lambda: SinusoidalPositionalEncoding(D), positions_case
    ),
    "learned": (
        LearnedPositionalEmbedding, lambda: LearnedPositionalEmbedding(L, D), positions_case
    ),
    "output": (Dense, lambda: Dense(V), plain_case),
    "output with a bias": (Dense, lambda: Dense(V, use_bias=True), plain_case),
    "pointer-generator": (
        PointerGenerator, lambda: PointerGenerator(V, use_bias=True), pointer_case
    ),
    "mean": (Pooling, lambda: Pooling("mean"), pooling_case),
    "state of bos": (Pooling, lambda: Pooling("bos"), pooling_case),
    "pieces": (Pieces, lambda: Pieces(3, 1), pieces_case),
    "lstm": (Recurrence, lambda: Recurrence(D), recurrence_case),
    "encoder layer": (EncoderLayer, lambda: EncoderLayer(**SIZES), encoder_layer_case),
    "encoder": (Encoder, lambda: Encoder(2, **SIZES, norm="pre"), encoder_case),
    "decoder layer": (DecoderLayer, lambda: DecoderLayer(**SIZES), decoder_layer_case),
    "decoder": (Decoder, lambda: Decoder(2, **SIZES, norm="pre"), decoder_case),
}  # fmt: skip


def test_every_inference_layer_has_a_case():
    assert {case[0] for case in CASES.values()} == set(INFERENCE_LAYERS)


@pytest.mark.parametrize("name", CASES)
def test_inference_layer_equals_its_layer(name, rng, randomise):
    _, make, case = CASES[name]
    layer, x, memory = make(), *(tf.constant(rng.normal(size=(B, n, D)), "float32") for n in (T, S))
    case(layer, x, memory)  # which builds it
    expected, by_inference_layer = case(randomise(layer), x, memory)
    fusing = Fusing(L, tf.float32)
    found = by_inference_layer(fusing.inference_layer(layer, "layer"), fusing.weights)
    expected = rows(expected)
    # The output at padding is not defined; in the second row it is zero.
    real = MASK.ravel() if "encoder" in name else np.ones(len(expected), bool)
    np.testing.assert_allclose(found[real], expected[real], atol=1e-5, rtol=1e-5)


def small():
    return Transformer(TransformerConfig(V, num_encoder_layers=2, num_decoder_layers=2, **SIZES))


def test_layer_used_twice_is_fused_once(randomise):
    model = randomise(small())
    alone = len(tf.nest.flatten(fuse(model, L)[1]))
    model.encoder.layers[1] = model.encoder.layers[0]
    model.decoder.layers[1] = model.decoder.layers[0]
    inference_layer, weights = fuse(model, L)
    assert len(tf.nest.flatten(weights)) < alone
    assert inference_layer.encoder.layers[0] is inference_layer.encoder.layers[1]
    source, target = np.array([[5, 6, 7, 3]]), np.array([[2, 5, 9]])
    inference = Inference(inference_layer, weights)
    logits, _ = inference.decode(tf.constant(target, tf.int32), inference.memory(source))
    expected = model({"source_ids": source, "target_ids": target})
    np.testing.assert_allclose(logits, expected, atol=1e-5, rtol=1e-5)


def test_a_layer_without_an_inference_layer_is_refused_by_its_name():
    class Doubled(FeedForward):
        def call(self, x):
            return 2 * super().call(x)

    model = small()
    model.decoder.layers[1].feed_forward.__class__ = Doubled
    with pytest.raises(ValueError, match="decoder/layer_1/feed_forward must be .* got Doubled"):
        fuse(model, L)
    with pytest.raises(ValueError, match="model must be one of .* got Sequential"):
        fuse(keras.Sequential([]), L)


def test_attention_biases_equal_the_masks_of_the_layers():
    ids = tf.constant([[5, 0, 7, 6, 0], [4, 4, 4, 4, 4], [0, 0, 0, 0, 0]])
    mask = masks.padding_mask(ids)
    np.testing.assert_array_equal(padding_bias(ids) == 0, masks.attention_mask(mask))
    np.testing.assert_array_equal(causal_bias(ids, 5) == 0, masks.attention_mask(mask, 5))
