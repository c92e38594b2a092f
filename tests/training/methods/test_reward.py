"""BLEU as a reward: sacreBLEU's scores, weights by hand and by the derivative of the risk."""

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf

from tfformer import Tokenizer, Transformer, TransformerConfig
from training.methods.method import Methods
from training.methods.reward import (
    SHARPNESS,
    Reward,
    advantage_weights,
    candidates,
    first_of_equal,
    risk_weights,
    sentence_bleu,
    with_last,
)
from training.recipe import Recipe
from training.step.parallel import in_parts
from training.tasks import TASKS

TEXTS = ["eine rote Katze schläft .", "zwei Hunde laufen im Park .", "ein Haus"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS, vocabulary_size=300)


def test_sentence_bleu_equals_sacrebleu():
    pairs = [
        ("the cat sat on the mat", "the cat sat on a mat"),
        ("the cat", "the cat sat on a mat"),
        ("Cat, the!", "the cat sat on a mat"),
        ("the the the the", "the cat is here"),
        ("", "the cat"),
        ("eine rote Katze", "eine rote Katze"),
    ]
    for hypothesis, reference in pairs:
        expected = sacrebleu.sentence_bleu(hypothesis, [reference]).score
        assert sentence_bleu(hypothesis, reference) == pytest.approx(expected, abs=1e-6)
    assert sentence_bleu(*pairs[-1]) == pytest.approx(100) and sentence_bleu(*pairs[4]) == 0


def test_weights_of_minimum_risk_by_hand():
    """Two equally probable candidates with BLEU 1 and 0: each Q is 1/2, R is 1/2."""
    weights = risk_weights(tf.constant([[-3.0, -3.0]]), tf.constant([[1.0, 0.0]]))
    np.testing.assert_allclose(weights, [[2 * 0.5 * 0.5, -2 * 0.5 * 0.5]], rtol=1e-6)


def test_minimum_risk_weights_are_the_derivative_of_the_risk(rng):
    log_probs = tf.Variable(rng.normal(-20, 9, (3, 5)).astype("float32"))
    rewards = rng.random((3, 5)).astype("float32")
    known = np.ones((3, 5), bool)
    known[1, 3] = False
    with tf.GradientTape() as tape:
        q = tf.nn.softmax(tf.where(known, SHARPNESS * log_probs, -1e9))
        risk = tf.reduce_sum(q * (1 - rewards))
    # The minimised loss is - sum w log P; the factor a n is left out or put in.
    expected = -tape.gradient(risk, log_probs) / SHARPNESS * 5
    weights = risk_weights(log_probs, rewards, known)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(tf.reduce_sum(weights, axis=1), 0, atol=1e-6)
    assert weights[1, 3] == 0


def test_advantage_is_reward_minus_greedy_reward():
    weights = advantage_weights(tf.constant([[0.5, 0.1]]), tf.constant([[0.3]]))
    np.testing.assert_allclose(weights, [[0.2, -0.2]], rtol=1e-6)


def test_candidates_are_arranged_as_a_batch():
    ids = tf.constant([[[5, 3, 0], [6, 7, 3]], [[8, 3, 0], [0, 0, 0]]])
    with_reference = with_last(ids, tf.constant([[5, 3], [9, 3]]))
    assert with_reference.shape == (2, 3, 3)
    np.testing.assert_array_equal(with_reference[:, 2], [[5, 3, 0], [9, 3, 0]])
    # The first reference was sampled before.
    np.testing.assert_array_equal(
        first_of_equal(with_reference), [[True, True, False], [True, True, True]]
    )
    source = tf.constant([[4, 3], [5, 3]])
    known = source, ids, tf.constant([[1.0, 2.0], [3.0, 4.0]])
    inputs, labels, weights = candidates(*known, limit=tf.constant([9, 9]))
    np.testing.assert_array_equal(inputs["source_ids"], [[4, 3], [4, 3], [5, 3], [5, 3]])
    np.testing.assert_array_equal(labels, [[5, 3, 0], [6, 7, 3], [8, 3, 0], [0, 0, 0]])
    np.testing.assert_array_equal(
        inputs["target_ids"], [[2, 5, 0], [2, 6, 7], [2, 8, 0], [0, 0, 0]]
    )
    np.testing.assert_array_equal(weights, [[1] * 3, [2] * 3, [3] * 3, [4] * 3])
    # At the maximum length there is no choice: 3 is the last token of [6, 7, 3], and of [8, 3].
    *_, weights = candidates(*known, limit=tf.constant([3, 2]))
    np.testing.assert_array_equal(weights, [[1, 1, 0], [2, 2, 0], [3, 0, 0], [4, 0, 0]])


def test_reward_computes_logits_without_dropout(randomise):
    """Without dropout; otherwise the sampled texts would become less likely only because they
    are the model's own."""
    config = TransformerConfig.preset("test", 17, dropout=0.5)
    recipe = Recipe(reward="self-critical")
    for methods in (TASKS["translation"].methods(recipe), Methods()):
        model = randomise(in_parts(Transformer)(config, methods=methods))
        ids = np.array([[5, 6, 7, 3], [8, 9, 3, 0]])
        logits, _ = model._asked({"source_ids": ids, "target_ids": ids})
        served = model({"source_ids": ids, "target_ids": ids})
        assert np.allclose(logits, served, atol=1e-6) == methods.as_served


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["minimum-risk", "self-critical"])
def test_samples_are_scored_against_their_reference(kind, tokenizer, randomise):
    size = tokenizer.source_vocabulary_size
    config = TransformerConfig.preset("test", size, num_encoder_layers=1, num_decoder_layers=1)
    model = in_parts(Transformer)(config, methods=Methods(notes=("reward",)))
    ids = tokenizer.encode_target(TEXTS).to_tensor()
    blank = tf.zeros([1, ids.shape[1]], tf.int32)  # the rest of a batch that is not full
    ids = tf.concat([ids, blank], axis=0)
    method = Reward(kind, 3, tokenizer, 64)
    given = {"source_ids": ids, "target_ids": ids}
    draw = tf.function(lambda seed: method(model, given, ids, seed))  # as a step of training does
    inputs, labels, weights = draw(tf.constant([2, 7], tf.int64))
    count = 4 if kind == "minimum-risk" else 3
    assert labels.shape[0] == weights.shape[0] == 4 * count
    texts = [text.decode() for text in tokenizer.decode(labels).numpy()]
    rewards = [sentence_bleu(text, TEXTS[n // count]) for n, text in enumerate(texts[: 3 * count])]
    rewards = np.array(rewards).reshape(3, count) / 100
    found = model.noted[0].result()
    np.testing.assert_allclose(found, rewards[:, :3].mean(), atol=1e-5)
    assert (weights.numpy()[3 * count :] == 0).all()
    of_rows = weights.numpy()[:, 0].reshape(4, count)[:3]
    if kind == "minimum-risk":
        assert texts[3::4][:3] == TEXTS  # the reference, which has the highest BLEU
        assert (of_rows.argmax(axis=1) == 3).all()
        np.testing.assert_allclose(of_rows.sum(axis=1), 0, atol=1e-5)
    # The same seed draws the same.
    again = draw(tf.constant([2, 7], tf.int64))[1]
    np.testing.assert_array_equal(again, labels)
    other = draw(tf.constant([3, 7], tf.int64))[1]
    assert labels.shape != other.shape or (labels.numpy() != other.numpy()).any()


def test_a_bucket_may_be_longer_than_the_longest_text(tokenizer):
    config = TransformerConfig.preset(
        "test", tokenizer.source_vocabulary_size, num_decoder_layers=1
    )
    model = in_parts(Transformer)(config, methods=Methods(notes=("reward",)))
    ids = tokenizer.encode_target(TEXTS[2:]).to_tensor()
    ids = tf.pad(ids, [[0, 0], [0, 29 - ids.shape[1]]])
    given = {"source_ids": ids, "target_ids": ids}
    found = Reward("minimum-risk", 2, tokenizer, 11)(model, given, ids, tf.constant([2, 7]))
    assert found[1].shape == (3, 29)
