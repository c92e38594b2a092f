"""Masked language model, tagger, span reader: the oracle, inference layers, independent rows."""

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer import (
    Embedder,
    MaskedLanguageModel,
    PositionCrossEntropy,
    SpanReader,
    Tagger,
)
from tfformer.config import EmbedderConfig, MaskedLanguageModelConfig, SpanConfig, TaggerConfig
from tfformer.inference.fuse import fuse
from tfformer.inference.text_encoder import TextEncoderInference

S, V, C = 8, 17, 5
IDS = np.array([[5, 9, 3, 7, 8, 2, 6, 3], [4, 3, 16, 3, 0, 0, 0, 0], [3, 12, 11, 3, 0, 0, 0, 0]])


def masked_language_model(model, ids):
    x = oracle.text_states(model, ids)
    if model.transform is not None:
        x = oracle.transform(model.transform, x)
    if model.config.tie_embeddings == "none":
        return oracle.dense(model.output_projection, x)
    table = oracle.array(model.embedding.embeddings)
    return x @ table.T + oracle.array(model.output_projection.bias)


def tagger(model, ids):
    return oracle.dense(model.output_projection, oracle.text_states(model, ids))


def span_reader(model, ids):
    """For a position between the first and the second eos; -1e9 elsewhere."""
    logits = tagger(model, ids).swapaxes(1, 2)
    for row, own in enumerate(ids):
        first, second = np.flatnonzero(own == 3)[:2]
        logits[row, :, : first + 1], logits[row, :, second:] = -1e9, -1e9
    return logits


CASES = {
    "tied": (MaskedLanguageModel, MaskedLanguageModelConfig, {}, masked_language_model),
    "untied": (MaskedLanguageModel, MaskedLanguageModelConfig,
               {"tie_embeddings": "none", "norm": "pre"}, masked_language_model),
    "tagger": (Tagger, TaggerConfig, {"num_labels": C}, tagger),
    "learned": (Tagger, TaggerConfig,
                {"num_labels": C, "positions": "learned", "max_positions": 11}, tagger),
    "bos, transform": (MaskedLanguageModel, MaskedLanguageModelConfig,
                       {"add_bos": True, "transform": True, "activation": "gelu"},
                       masked_language_model),
    "bos": (Tagger, TaggerConfig,
            {"num_labels": C, "add_bos": True, "positions": "learned", "max_positions": 12},
            tagger),
    "types": (SpanReader, SpanConfig,
              {"add_bos": True, "token_types": True, "embedding_norm": True}, span_reader),
    "two separators": (SpanReader, SpanConfig,
                       {"add_bos": True, "separators": 2, "token_types": True}, span_reader),
    "two separators, no bos": (SpanReader, SpanConfig, {"separators": 2}, span_reader),
    "embedder": (Embedder, EmbedderConfig, {"pooling": "bos", "normalize": True}, oracle.embedder),
    "embedder, mean": (Embedder, EmbedderConfig, {"add_bos": True}, oracle.embedder),
    "span": (SpanReader, SpanConfig, {"norm": "pre"}, span_reader),
}  # fmt: skip


def make(name):
    kind, configuration, options, _ = CASES[name]
    return kind(configuration.preset("test", V, **options))


@pytest.mark.parametrize("name", CASES)
def test_head_equals_the_oracle_and_its_inference_layer(name, randomise, reload):
    model = randomise(make(name))
    found = model(IDS)
    expected = CASES[name][3](model, IDS)
    assert found.shape == expected.shape
    possible = expected > -1e8
    is_span, is_one = isinstance(model, SpanReader), isinstance(model, Embedder)
    real = True if is_one else (IDS > 0)[:, None] if is_span else (IDS > 0)[..., None]
    real = np.broadcast_to(real, expected.shape)
    np.testing.assert_array_equal(found.numpy() > -1e8, possible)
    oracle.assert_close(found.numpy()[possible & real], expected[possible & real])
    inference_layer = TextEncoderInference(*fuse(model, 11))(tf.constant(IDS))
    np.testing.assert_allclose(
        inference_layer.numpy()[possible & real],
        found.numpy()[possible & real],
        atol=1e-5,
        rtol=1e-4,
    )
    for row, size in ((1, 4), (2, 4)):
        alone = model(IDS[row : row + 1, :size])[0]
        kept = found[row, ..., :size] if is_span else found[row] if is_one else found[row, :size]
        np.testing.assert_allclose(alone, kept, atol=1e-4, rtol=1e-5)
    np.testing.assert_array_equal(reload(model)(IDS), found)


def test_packed_texts_give_the_same_logits_as_separate_texts(randomise):
    """For a masked language model: both directions are visible, neighbouring texts are not."""
    model = randomise(make("tied"))
    joined = {
        "ids": np.array([[5, 2, 7, 3, 9, 2, 8, 6, 3, 0]]),
        "texts": np.array([[4, 4, 4, 4, 1, 1, 1, 1, 1, 0]]),
    }
    found = model(joined).numpy()
    assert found.shape == (10, V)
    oracle.assert_close(found[:4], model(joined["ids"][:, :4])[0].numpy())
    oracle.assert_close(found[4:9], model(joined["ids"][:, 4:9])[0].numpy())
    changed = joined["ids"].copy()
    changed[0, 2] = 11  # a later token is visible
    assert np.abs(model({**joined, "ids": changed}).numpy()[0] - found[0]).max() > 1e-3


@pytest.mark.slow
def test_span_reader_learns_with_plain_fit():
    """The answer is the token of the question, at any position."""
    rng = np.random.default_rng(5)
    texts = np.array([rng.permutation(np.arange(4, 12))[:5] for _ in range(160)])
    places = rng.integers(0, 5, size=160)
    asked = texts[np.arange(160), places]
    ids = np.concatenate([asked[:, None], np.full((160, 1), 3), texts, np.full((160, 1), 3)], 1)
    labels = np.stack([places + 2, places + 2], axis=1)
    model = SpanReader(SpanConfig.preset("test", V, num_layers=2, dropout=0.0, norm="pre"))
    model.compile(keras.optimizers.Adam(0.01), PositionCrossEntropy(0.0), jit_compile=False)
    model.fit(ids, labels, batch_size=16, epochs=25, verbose=0)
    assert (model(ids).numpy().argmax(axis=-1) == labels).mean() > 0.9
