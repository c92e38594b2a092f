"""The encoder-only models: the oracle, independent rows, fit, round trip through a file."""

import functools

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

from tfformer import Classifier, ClassifierConfig, LabelAccuracy, LabelCrossEntropy, LabelPerplexity
from tfformer.inference.fuse import fuse
from tfformer.inference.text_encoder import TextEncoderInference
from tfformer.layers.overlapping_windows import Pieces

B, S, V, C = 4, 7, 17, 5
VARIANTS = {
    "mean": {},
    "bos": {"pooling": "bos", "norm": "pre"},
    "learned": {"pooling": "bos", "positions": "learned", "max_positions": 11, "last_norm": True},
    "a norm after the embeddings": {"embedding_norm": True, "epsilon": 1e-3},
    "a bos that is only read, relu": {"add_bos": True, "pooler": "relu"},
    "tanh": {"pooling": "bos", "pooler": "tanh", "positions": "learned", "max_positions": 11},
    "pieces": {"piece_length": 3, "piece_overlap": 1},
    "lstm": {"piece_length": 3, "pieces": "lstm", "pooling": "bos", "multi_label": True},
    "transformer": {"piece_length": 4, "piece_overlap": 3, "pieces": "transformer"},
}
variants = pytest.mark.parametrize("variant", VARIANTS)


def make(variant="mean", **changes):
    changes = {**VARIANTS[variant], **changes}
    return Classifier(ClassifierConfig.preset("test", V, num_labels=C, **changes))


@pytest.fixture(scope="module")
def model_of(randomise):
    """One model with random weights for each variant; the tests do not change them."""
    return functools.cache(lambda variant: randomise(make(variant)))


@pytest.fixture
def ids(rng):
    """Texts of 7, 4, 2 and 1 tokens, including eos."""
    ids = rng.integers(4, V, size=(B, S))
    for row, size in enumerate((7, 4, 2, 1)):
        ids[row, size - 1], ids[row, size:] = 3, 0
    return ids.astype("int32")


@variants
def test_logits_and_vectors_equal_the_oracle(variant, ids, model_of):
    model = model_of(variant)
    logits = model(ids)
    if model.config.multi_label:
        assert logits.shape == (B, C, 2) and not logits[..., 0].numpy().any()
        logits = logits[..., 1]
    assert logits.shape == (B, C)
    oracle.assert_close(logits, oracle.classifier(model, ids))
    oracle.assert_close(model.embed({"ids": ids}), oracle.text_vectors(model, ids))


@variants
def test_no_text_depends_on_padding_or_batch_mates(variant, ids, model_of):
    model = model_of(variant)
    logits = model(ids).numpy()
    oracle.assert_close(model(np.pad(ids, ((0, 0), (0, 3)))), logits)
    for row, size in enumerate((7, 4, 2, 1)):
        oracle.assert_close(model(ids[row : row + 1, :size])[0], logits[row])


@variants
def test_inference_layers_equal_the_model(variant, ids, model_of):
    model = model_of(variant)
    inference = TextEncoderInference(*fuse(model, 11))
    np.testing.assert_allclose(inference(ids), model(ids), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(inference.embed(ids), model.embed(ids), atol=1e-5, rtol=1e-4)


def test_pieces_by_hand():
    ids = np.array([[*range(5, 15), 3], [7, 8, 9, 10, 11, 3, 0, 0, 0, 0, 0], [3] + [0] * 10])
    pieces, real = Pieces(length=5, overlap=2)(ids)
    assert pieces.numpy().tolist() == [
        [[5, 6, 7, 8, 9], [8, 9, 10, 11, 12], [11, 12, 13, 14, 3]],
        [[7, 8, 9, 10, 11], [10, 11, 3, 0, 0], [0, 0, 0, 0, 0]],
        [[3, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
    ]
    assert real.numpy().tolist() == [[True] * 3, [True, True, False], [True, False, False]]
    # Six tokens end with the second piece, although a third could hold some of them.
    _, real = Pieces(length=5, overlap=4)(ids)
    assert real.numpy().sum(axis=1).tolist() == [7, 2, 1]
    pieces, real = Pieces(length=64)(ids[:, :4])
    assert pieces.shape == (3, 1, 4) and real.numpy().all()


def test_text_no_longer_than_a_piece_gives_the_same_logits(ids, randomise):
    whole, cut = make("mean"), make("mean", piece_length=S)
    cut.set_weights(randomise(whole).get_weights())
    oracle.assert_close(cut(ids), whole(ids))


def test_row_of_only_padding_gives_finite_logits(model_of):
    for variant in VARIANTS:
        assert np.isfinite(model_of(variant)(np.zeros((2, 3), "int32"))).all()


@pytest.mark.slow
def test_fit_learns_and_the_saved_model_gives_the_same_logits(reload, rng):
    """The label of a text is given by one of its tokens."""
    ids = rng.integers(9, V, size=(96, 6)).astype("int32")
    labels = rng.integers(1, C + 1, size=(96, 1))
    ids[np.arange(96), rng.integers(0, 6, size=96)] = labels[:, 0] + 3
    model = make(num_layers=1, dropout=0.0)
    loss = LabelCrossEntropy(0.0)
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, loss, metrics=[LabelAccuracy()], jit_compile=False)
    history = model.fit(ids, labels, batch_size=16, epochs=12, verbose=0).history
    assert history["accuracy"][-1] > 0.95
    again = reload(model)
    np.testing.assert_array_equal(again(ids[:3]), model(ids[:3]))


def test_loss_and_metrics_are_those_of_numpy(rng):
    labels = np.array([[1, 5], [0, 3], [2, 0]])
    logits = rng.normal(scale=2, size=(3, 2, C)).astype("float32")
    weights = [0.5, 2.0, 1.0, 7.0, 3.0]
    log_probs = np.log(oracle.softmax(logits.astype("float64")))
    own = [(b, t, label - 1) for (b, t), label in np.ndenumerate(labels) if label]
    nll = np.array([-log_probs[place] for place in own])
    smooth = np.array([-log_probs[b, t].mean() for b, t, _ in own])
    of = np.array([weights[n] for *_, n in own])
    np.testing.assert_allclose(LabelCrossEntropy(0.0)(labels, logits), nll.mean(), rtol=1e-5)
    expected = ((0.9 * nll + 0.1 * smooth) * of).mean()
    loss = LabelCrossEntropy(0.1, weights=weights)
    np.testing.assert_allclose(loss(labels, logits), expected, rtol=1e-5)
    again = LabelCrossEntropy.from_config(loss.get_config())
    np.testing.assert_array_equal(again(labels, logits), loss(labels, logits))
    accuracy, perplexity = LabelAccuracy(), LabelPerplexity()
    for rows in (slice(0, 1), slice(1, 3)):
        for metric in (accuracy, perplexity):
            metric.update_state(labels[rows], logits[rows])
    hits = np.mean([logits[b, t].argmax() == n for b, t, n in own])
    np.testing.assert_allclose([accuracy.result()], hits, rtol=1e-6)
    np.testing.assert_allclose(perplexity.result(), np.exp(nll.mean()), rtol=1e-5)


@pytest.mark.parametrize("wrong", [-1, C + 1])
def test_label_out_of_range_makes_the_loss_nan(wrong):
    assert np.isnan(LabelCrossEntropy()(np.array([[wrong]]), np.zeros((1, C), "float32")))


def test_wrong_inputs_and_options_are_refused():
    model = make()
    with pytest.raises(ValueError, match=r"inputs must be ids \[B, S\] or .*'texts'"):
        model({"ids": np.ones((1, 2), int), "texts": np.ones((1, 2), int)})
    with pytest.raises(ValueError, match=r"ids must be \[B, S\], got shape \(3,\)"):
        model(np.ones(3, int))
    with pytest.raises(ValueError, match="config must be a ClassifierConfig"):
        Classifier(None)
    with pytest.raises(ValueError, match="piece_overlap must be less than piece_length = 3, got 3"):
        make(piece_length=3, piece_overlap=3)
    with pytest.raises(ValueError, match="piece_length must be at most 10, .* got 11"):
        make("learned", piece_length=11)
    with pytest.raises(ValueError, match=r"overlap must be in \[0, length = 3\), got 5"):
        Pieces(3, 5)
    with pytest.raises(ValueError, match="pooling must be one of .* got 'max'"):
        make(pooling="max")
    config = make("learned").config
    assert config.longest == 10  # bos needs a position


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_close_to_float32(ids, dtype, model_of):
    model = Classifier(make("mean").config, dtype=dtype)
    model.set_weights(model_of("mean").get_weights())
    found = tf.cast(model(ids), tf.float32)
    np.testing.assert_allclose(found, model_of("mean")(ids), atol=0.3)
