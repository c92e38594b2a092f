"""CTC compared with a sum over all alignments and with another implementation of the loss."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tfformer.ctc import IMPOSSIBLE, CTCAccuracy, CTCLoss, collapse, ctc_log_likelihood

B, P, V = 3, 5, 4


def said(places):
    """The text that these positions spell, in plain Python: the second implementation."""
    grouped = [place for place, _ in itertools.groupby(places)]
    return [place for place in grouped if place != 0]


@pytest.fixture
def logits(rng):
    return rng.normal(size=(B, P, V)).astype("float32")


LABELS = np.array([[1, 1, 0], [2, 3, 1], [0, 0, 0]])


def test_log_likelihood_is_the_sum_over_all_alignments(logits):
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    found = ctc_log_likelihood(LABELS, logits)
    assert found.shape == (B,)
    for row, labels in enumerate(LABELS):
        ways = [
            sum(log_probs[row, place, token] for place, token in enumerate(way))
            for way in itertools.product(range(V), repeat=P)
            if said(way) == [label for label in labels if label]
        ]
        assert float(found[row]) == pytest.approx(np.log(np.exp(ways).sum()), abs=1e-5)


def test_padding_positions_at_the_end_change_nothing(logits):
    """A `NonAutoregressive` model pads like this: a padded position predicts blank with
    certainty."""
    blank = np.tile(np.where(np.arange(V) == 0, 0.0, -1e4), (B, 3, 1))
    longer = np.concatenate([logits, blank], axis=1)
    np.testing.assert_allclose(
        ctc_log_likelihood(LABELS, longer), ctc_log_likelihood(LABELS, logits), rtol=1e-5
    )


def test_loss_and_gradient_equal_tensorflow(rng):
    logits = tf.constant(rng.normal(size=(7, 29, 13)), tf.float32)
    lengths = np.array([11, 5, 1, 7, 2, 3, 9])
    labels = rng.integers(1, 13, size=(7, 11))
    labels = np.where(np.arange(11) < lengths[:, None], labels, 0).astype("int32")
    loss = CTCLoss()

    @tf.function
    def ours(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(labels, logits)
        return value, tape.gradient(value, logits)

    with tf.GradientTape() as tape:
        tape.watch(logits)
        rows = tf.nn.ctc_loss(
            labels, logits, lengths, np.full(7, 29), logits_time_major=False, blank_index=0
        )
        value = tf.reduce_sum(rows) / lengths.sum()
    found, gradient = ours(logits)
    assert float(found) == pytest.approx(float(value), rel=1e-5)
    np.testing.assert_allclose(gradient, tape.gradient(value, logits), atol=1e-6)


def test_text_with_too_few_positions_has_no_loss_and_no_gradient(logits):
    """A label three times needs two blanks between them, so five positions."""
    labels = np.array([[2, 2, 2]] * B)
    assert (np.array(ctc_log_likelihood(labels, logits[:, :4])) <= IMPOSSIBLE / 2).all()
    assert np.isfinite(ctc_log_likelihood(labels, logits)).all()
    with tf.GradientTape() as tape:
        x = tf.constant(logits[:, :4])
        tape.watch(x)
        loss = CTCLoss()(labels, x)
    assert float(loss) == 0.0
    np.testing.assert_array_equal(tape.gradient(loss, x), 0.0)


def test_loss_of_a_row_is_divided_among_its_labels(logits):
    each = np.array(CTCLoss().call(LABELS, logits))
    assert each.shape == LABELS.shape
    expected = -np.array(ctc_log_likelihood(LABELS, logits))
    np.testing.assert_allclose(each[1], expected[1] / 3, rtol=1e-5)
    np.testing.assert_allclose(each[0, :2], expected[0] / 2, rtol=1e-5)
    total = float(CTCLoss()(LABELS, logits))
    assert total == pytest.approx((expected[0] + expected[1]) / 5, rel=1e-5)
    weighted = CTCLoss()(LABELS, logits, sample_weight=np.array([1.0, 0.0, 1.0]))
    assert float(weighted) == pytest.approx(expected[0] / 2, rel=1e-5)
    assert float(CTCLoss()(np.zeros_like(LABELS), logits)) == 0.0
    assert keras.losses.deserialize(keras.losses.serialize(CTCLoss())).name == "ctc_loss"


def test_collapse_equals_the_plain_version(rng):
    ids = rng.integers(0, 3, size=(97, 7))
    found = np.array(collapse(ids))
    for row, places in zip(found, ids, strict=True):
        expected = said(places.tolist())
        assert row.tolist() == expected + [0] * (7 - len(expected))


def test_accuracy_by_hand():
    accuracy = CTCAccuracy()
    places = np.array([[4, 4, 0, 4, 0], [5, 0, 6, 6, 6]])  # 4 4 and 5 6
    accuracy.update_state([[4, 5, 0], [5, 6, 6]], ops.one_hot(places, 7))
    assert float(accuracy.result()) == pytest.approx(3 / 5)
    accuracy.update_state([[4, 4, 0], [0, 0, 0]], ops.one_hot(places, 7))
    assert float(accuracy.result()) == pytest.approx(5 / 7)
