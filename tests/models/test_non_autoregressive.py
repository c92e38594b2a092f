"""The non-autoregressive model: the oracle, all positions visible, no access to padding or other
rows."""

import functools

import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer import NonAutoregressive, NonAutoregressiveConfig
from tfformer.inference.fuse import fuse
from tfformer.inference.non_autoregressive import ParallelInference
from tfformer.loss import LengthCrossEntropy, SmoothedCrossEntropy

B, S, T, V, N, K = 3, 5, 7, 17, 4, 3
VARIANTS = {
    "mask-predict": {"max_length_difference": N},
    "mask-predict, learned": {
        "max_length_difference": N, "positions": "learned", "max_positions": 23, "norm": "pre",
        "tie_embeddings": "all",
    },
    "mask-predict, relative": {
        "max_length_difference": N, "attention_positions": "relative", "share_halves": True,
    },
    "mask-predict, a norm after the embeddings": {
        "max_length_difference": N, "embedding_norm": True,
    },
    "ctc, a norm after the embeddings": {
        "decoding": "ctc", "tie_embeddings": "target", "upsampling": K, "embedding_norm": True,
    },
    "ctc": {"decoding": "ctc", "tie_embeddings": "target", "upsampling": K},
    "eos": {"decoding": "eos", "tie_embeddings": "all", "upsampling": K, "norm": "pre"},
}  # fmt: skip
variants = pytest.mark.parametrize("variant", VARIANTS)
masked = pytest.mark.parametrize("variant", [name for name in VARIANTS if "mask" in name])
SOURCE = np.array([[5, 4, 9, 7, 3], [7, 8, 3, 0, 0], [16, 3, 0, 0, 0]])
TARGET = np.array([[2, 9, 2, 6, 5, 11, 2], [2, 2, 7, 0, 0, 0, 0], [4, 2, 0, 0, 0, 0, 0]])


@pytest.fixture(scope="module")
def model_of(randomise):
    """One model with random weights for each variant; the tests do not change them."""

    def make(variant):
        layers = {"num_encoder_layers": 1, "num_decoder_layers": 2}
        config = NonAutoregressiveConfig.preset("test", V, **layers, **VARIANTS[variant])
        return randomise(NonAutoregressive(config))

    return functools.cache(make)


def inputs_of(model, source=SOURCE, target=TARGET):
    inputs = {"source_ids": source}
    return inputs if model.upsampling else {**inputs, "target_ids": target}


@variants
def test_logits_equal_the_oracle(variant, model_of):
    model = model_of(variant)
    found = model(inputs_of(model)).numpy()
    logits, lengths = oracle.non_autoregressive(model, SOURCE, TARGET)
    if lengths is None:
        assert found.shape == (B, K * S, V) and model.places == K
        real = np.repeat(SOURCE != 0, K, axis=1)
        oracle.assert_close(found[real], logits[real], 1e-4)
        # After the source, a position predicts padding with certainty.
        assert (found[~real].argmax(axis=1) == 0).all()
        oracle.assert_close(oracle.softmax(found[~real])[:, 0], 1.0)
        return
    assert found.shape == (B, 1 + T, V) and model.places == 1
    real = TARGET != 0
    oracle.assert_close(found[:, 1:][real], logits[real], 1e-4)
    oracle.assert_close(found[:, 0, 1 : 2 * N + 2], lengths, 1e-4)
    # Impossible lengths have probability 0.
    others = oracle.softmax(found[:, 0])
    assert others[:, 0].max() == 0 and others[:, 2 * N + 2 :].max() == 0


@variants
def test_padding_and_batch_mates_change_nothing(variant, model_of):
    model = model_of(variant)
    found = model(inputs_of(model)).numpy()
    longer = model(inputs_of(model, *(np.pad(ids, ((0, 0), (0, 4))) for ids in (SOURCE, TARGET))))
    oracle.assert_close(longer[:, : found.shape[1]], found, 1e-4)
    alone = model(inputs_of(model, SOURCE[1:2, :3], TARGET[1:2, :3])).numpy()
    oracle.assert_close(alone[0], found[1, : alone.shape[1]], 1e-4)


@masked
def test_tokens_depend_on_all_positions_and_the_length_on_none(variant, model_of):
    """This would be an error in a causal decoder. And if the length saw the target, nothing
    would be left to predict."""
    model = model_of(variant)
    before = model(inputs_of(model)).numpy()
    for place in (0, T - 1):
        changed = TARGET.copy()
        changed[0, place] = 13
        after = model(inputs_of(model, target=changed)).numpy()
        moved = np.abs(after - before).max(axis=-1)
        assert (moved[0, 1:] > 1e-4).all()
        assert moved[:, 0].max() == 0 and moved[1:].max() < 1e-4


@variants
def test_inference_layers_equal_the_model(variant, model_of):
    model = model_of(variant)
    inference_layer, weights = fuse(model, K * S)
    inference = ParallelInference(inference_layer, weights)
    expected = model(inputs_of(model)).numpy()
    source = tf.constant(SOURCE, tf.int32)
    memory = inference.start(source)
    if model.upsampling:
        found, real = inference.logits_of_places(source, memory), np.repeat(SOURCE != 0, K, axis=1)
    else:
        found, real = inference.logits(tf.constant(TARGET, tf.int32), memory), TARGET != 0
        np.testing.assert_allclose(
            memory["lengths"], expected[:, 0, 1 : 2 * N + 2], atol=1e-5, rtol=1e-4
        )
        expected = expected[:, 1:]
    np.testing.assert_allclose(found.numpy()[real], expected[real], atol=1e-5, rtol=1e-4)


def test_length_loss_is_not_smoothed_and_token_loss_is(model_of):
    model = model_of("mask-predict")
    logits = model(inputs_of(model)).numpy()
    labels = np.concatenate([[[3], [2 * N + 1], [1]], np.where(TARGET == 2, 5, 0)], axis=1)
    known = logits[:, :1, 1 : 2 * N + 2].astype("float64")
    own = oracle.smoothed_cross_entropy(
        labels[:, :1], np.pad(known, ((0, 0), (0, 0), (1, 0)), constant_values=-99), 0.0
    )
    tokens = oracle.smoothed_cross_entropy(labels[:, 1:], logits[:, 1:].astype("float64"), 0.1)
    count = (labels[:, 1:] != 0).sum()
    expected = (own * B + tokens * count) / (B + count)
    assert float(LengthCrossEntropy()(labels, logits)) == pytest.approx(expected, rel=1e-5)
    # With smoothing, impossible lengths would give a loss of thousands.
    assert float(SmoothedCrossEntropy()(labels, logits)) > 100


def test_reloaded_model_gives_the_same_logits(model_of, reload):
    model = model_of("ctc")
    again = reload(model)
    assert again.config == model.config
    np.testing.assert_array_equal(again(inputs_of(model)), model(inputs_of(model)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoding": "both"}, r"decoding must be one of \('mask-predict', 'ctc', 'eos'\)"),
        ({"decoding": "ctc"}, "tie_embeddings must be 'target' or 'all' with decoding='ctc'"),
        ({"max_length_difference": 8}, r"2 max_length_difference \+ 1 must be less than .*=17"),
        ({"upsampling": 0}, "upsampling must be an integer of at least 1, got 0"),
        ({"copy": True}, "fields must be among"),
    ],
)
def test_wrong_configuration_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        NonAutoregressiveConfig.preset("test", V, **changes)


def test_wrong_inputs_are_refused(model_of):
    model = model_of("mask-predict")
    with pytest.raises(
        ValueError, match=r"inputs must be a dict of \['source_ids', 'target_ids'\]"
    ):
        model({"source_ids": SOURCE})
    with pytest.raises(ValueError, match=r"inputs must be a dict of \['source_ids'\]"):
        model_of("ctc")({"source_ids": SOURCE, "target_ids": TARGET})
    with pytest.raises(ValueError, match=r"source_ids must be \[B, T\], got shape \(5,\)"):
        model({"source_ids": SOURCE[0], "target_ids": TARGET})
    with pytest.raises(ValueError, match="config must be a NonAutoregressiveConfig, got 3"):
        NonAutoregressive(3)
