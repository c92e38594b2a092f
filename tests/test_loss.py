"""The loss is the dense formula over real tokens. Metrics are over all tokens, not means of
means."""

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf

import tfformer
from tfformer import Perplexity, SmoothedCrossEntropy, TokenAccuracy

B, T, V = 3, 5, 11

smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])


@pytest.fixture
def labels():
    # Rows of 5, 2 and 1 tokens, so that a mean over rows differs from a mean over tokens.
    return np.array([[5, 10, 1, 7, 3], [4, 3, 0, 0, 0], [3, 0, 0, 0, 0]])


@pytest.fixture
def logits(rng):
    return rng.normal(scale=2, size=(B, T, V)).astype("float32")


@smoothings
def test_loss_equals_the_dense_formula(labels, logits, smoothing):
    loss = SmoothedCrossEntropy(smoothing)(labels, logits)
    assert loss.shape == ()
    expected = oracle.smoothed_cross_entropy(labels, logits.astype("float64"), smoothing)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_loss_without_smoothing_equals_keras_on_the_tokens(labels, logits):
    token = labels != 0
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    expected = keras_loss(labels[token], logits[token])
    np.testing.assert_allclose(SmoothedCrossEntropy(0)(labels, logits), expected, rtol=1e-5)


@pytest.mark.parametrize("size", [(B,), (B, T)])
def test_sample_weight_of_a_row_or_a_token(labels, logits, rng, size):
    weights = rng.random(size)
    expected = oracle.smoothed_cross_entropy(
        labels, logits.astype("float64"), 0.1, weights if size == (B, T) else weights[:, None]
    )
    loss = SmoothedCrossEntropy(0.1)(labels, logits, sample_weight=weights)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


@smoothings
def test_custom_gradient_equals_the_derivative_of_tensorflow(labels, logits, rng, smoothing):
    """p - q of each token, times the gradient of its output, compared with TensorFlow's own
    derivative."""
    weights = rng.random((B, T)).astype("float32")
    variable = tf.Variable(logits)
    with tf.GradientTape(persistent=True) as tape:
        losses = SmoothedCrossEntropy(smoothing).call(labels, variable)
        ours = tf.reduce_sum(losses * weights)
        q = (1 - smoothing) * tf.one_hot(labels, V) + smoothing / V
        dense = -tf.reduce_sum(q * tf.nn.log_softmax(variable) * weights[..., None])
    np.testing.assert_allclose(ours, dense, rtol=1e-5)
    actual, expected = tape.gradient(ours, variable), tape.gradient(dense, variable)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_logits_of_any_size_give_finite_losses_and_gradients(labels):
    logits = tf.Variable(np.linspace(-1e4, 1e4, B * T * V).reshape(B, T, V).astype("float32"))
    with tf.GradientTape() as tape:
        loss = SmoothedCrossEntropy()(labels, logits)
    assert np.isfinite(loss)
    assert np.isfinite(tape.gradient(loss, logits)).all()


def test_r_drop_equals_its_formula(labels, logits, rng):
    """Of two passes: the mean of both cross-entropies, plus alpha / 2 times the symmetric
    divergence."""
    alpha = 5.0
    second = rng.normal(scale=2, size=logits.shape).astype("float32")
    variable = tf.Variable(np.concatenate([logits, second]))
    twice = np.concatenate([labels, labels])
    with tf.GradientTape(persistent=True) as tape:
        loss = SmoothedCrossEntropy(0.1, r_drop=alpha)(twice, variable)
        log_p, log_q = tf.split(tf.nn.log_softmax(variable), 2)
        p, q = tf.exp(log_p), tf.exp(log_q)
        apart = tf.reduce_sum(p * (log_p - log_q) + q * (log_q - log_p), -1) / 2
        tokens = (labels != 0).astype("float32")
        divergence = tf.reduce_sum(apart * tokens) / tokens.sum()
        expected = SmoothedCrossEntropy(0.1)(twice, variable) + alpha / 2 * divergence
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    ours, derivative = tape.gradient(loss, variable), tape.gradient(expected, variable)
    np.testing.assert_allclose(ours, derivative, atol=1e-6)


def test_appended_padding_changes_nothing(labels, logits, rng):
    longer_labels = np.pad(labels, ((0, 2), (0, 4)))
    longer_logits = rng.normal(size=(B + 2, T + 4, V)).astype("float32")
    longer_logits[:B, :T] = logits
    loss = SmoothedCrossEntropy()
    np.testing.assert_allclose(loss(longer_labels, longer_logits), loss(labels, logits), rtol=1e-5)


def test_batch_of_padding_gives_zero_and_a_zero_gradient(logits):
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = SmoothedCrossEntropy()(np.zeros((B, T), int), logits)
    assert float(loss) == 0
    np.testing.assert_array_equal(tape.gradient(loss, logits), np.zeros((B, T, V)))


@smoothings
def test_gradient_is_softmax_minus_smoothed_target_over_the_tokens(labels, logits, smoothing):
    watched = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(watched)
        loss = SmoothedCrossEntropy(smoothing)(labels, watched)
    targets = oracle.smoothed_targets(labels, V, smoothing)
    expected = (oracle.softmax(logits.astype("float64")) - targets) / (labels != 0).sum()
    expected[labels == 0] = 0
    np.testing.assert_allclose(tape.gradient(loss, watched), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_loss_is_computed_in_float32(labels, logits, dtype):
    half = tf.cast(logits, dtype)
    loss = SmoothedCrossEntropy()(labels, half)
    assert loss.dtype == "float32"
    exact = oracle.smoothed_cross_entropy(labels, np.asarray(tf.cast(half, "float64")), 0.1)
    np.testing.assert_allclose(loss, exact, rtol=1e-5)


def test_large_logits_do_not_overflow(labels):
    logits = np.zeros((B, T, V), "float32")
    logits[..., 2] = 3e4
    loss = SmoothedCrossEntropy(0.0)(labels, logits)
    np.testing.assert_allclose(loss, 3e4, rtol=1e-6)


def test_loss_config_round_trip(labels, logits):
    loss = SmoothedCrossEntropy(0.37, name="here")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert isinstance(again, SmoothedCrossEntropy)
    assert again.get_config() == loss.get_config()
    np.testing.assert_array_equal(again(labels, logits), loss(labels, logits))


@pytest.mark.parametrize("outside", [-1, -100, V, 2**31 - 1])
@pytest.mark.parametrize("compiled", [False, True])
def test_label_out_of_range_gives_nan_loss_and_gradient(labels, logits, outside, compiled):
    """It does not read the logit of a neighbour, and the other tokens keep their values."""
    labels[0, 1] = outside

    @tf.function(jit_compile=compiled)
    def run(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = SmoothedCrossEntropy()(labels, logits)
        return loss, SmoothedCrossEntropy().call(labels, logits), tape.gradient(loss, logits)

    loss, each, gradient = run(tf.constant(logits))
    assert np.isnan(loss) and np.isnan(gradient[0, 1]).any()
    own = np.argwhere(np.isnan(each))
    np.testing.assert_array_equal(own, [[0, 1]])


@pytest.mark.parametrize("outside", [-1, -100, V])
@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
def test_label_out_of_range_makes_a_metric_nan(labels, logits, outside, metric):
    labels[0, 1] = outside
    metric = metric()
    metric.update_state(labels, logits)
    assert np.isnan(metric.result())


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 2])
def test_error_names_a_bad_smoothing(smoothing):
    with pytest.raises(ValueError, match=f"smoothing must be in .* got smoothing={smoothing}"):
        SmoothedCrossEntropy(smoothing)


# Metrics.


def batches(rng):
    """Batches of 1, 2 and 4 rows, with 3, 14 and 4 tokens."""
    for lengths in ([3], [7, 7], [1, 2, 1, 0]):
        labels = rng.integers(1, V, size=(len(lengths), 7))
        labels = labels * (np.arange(7) < np.array(lengths)[:, None])
        logits = rng.normal(size=(len(lengths), 7, V)).astype("float32")
        # Half of the labels become likely, so that no metric is at chance level.
        logits += 4 * np.eye(V)[labels].astype("float32") * (rng.random((len(lengths), 7, 1)) < 0.5)
        yield labels, logits


def log_probs_of_tokens(labels, logits):
    log_probs = np.log(oracle.softmax(logits.astype("float64")))
    return np.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0][labels != 0]


def test_accuracy_over_batches_is_the_global_share(rng):
    metric, hits, means = TokenAccuracy(), [], []
    for labels, logits in batches(rng):
        metric.update_state(labels, logits)
        hits.append((logits.argmax(axis=-1) == labels)[labels != 0])
        means.append(hits[-1].mean())
    expected = np.concatenate(hits).mean()
    assert 0 < expected < 1
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-6)
    assert abs(np.mean(means) - expected) > 1e-3, "the test would not see a mean of means"


def test_perplexity_over_batches_is_the_global_figure(rng):
    metric, nlls, means = Perplexity(), [], []
    for labels, logits in batches(rng):
        metric.update_state(labels, logits)
        nlls.append(-log_probs_of_tokens(labels, logits))
        means.append(np.exp(nlls[-1].mean()))
    expected = np.exp(np.concatenate(nlls).mean())
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)
    assert abs(np.mean(means) - expected) > 1e-3, "the test would not see a mean of means"


@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
@pytest.mark.parametrize("size", [(B,), (B, T)])
def test_metric_weight_0_is_padding(metric, size, labels, logits):
    weighted, padded = metric(), metric()
    weights = np.ones(size)
    weights[0] = 0
    weighted.update_state(labels, logits, sample_weight=weights)
    labels[0] = 0
    padded.update_state(labels, logits)
    np.testing.assert_allclose(weighted.result(), padded.result(), rtol=1e-6)


@pytest.mark.parametrize(("metric", "nothing"), [(TokenAccuracy, 0.0), (Perplexity, 1.0)])
def test_metric_of_nothing_is_finite_and_reset_forgets(metric, nothing, labels, logits):
    metric = metric()
    assert float(metric.result()) == nothing
    metric.update_state(np.zeros((B, T), int), logits)
    assert float(metric.result()) == nothing
    metric.update_state(labels, logits)
    assert float(metric.result()) != nothing
    metric.reset_state()
    assert float(metric.result()) == nothing


@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
def test_metric_config_round_trip(metric):
    metric = metric(name="here")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()


def test_row_and_token_weights_alternate_in_one_model():
    ids, labels = np.array([[2, 5, 6], [2, 7, 0]]), np.array([[5, 6, 3], [7, 3, 0]])
    config = tfformer.LanguageModelConfig.preset("test", 17, dropout=0.0)
    model = tfformer.LanguageModel(config)
    model.compile(keras.optimizers.SGD(0.0), SmoothedCrossEntropy())
    rows = np.array([0.5, 2.0])
    found = [model.train_on_batch(ids, labels, sample_weight=w) for w in (
        rows, np.repeat(rows[:, None], 3, axis=1), rows
    )]  # fmt: skip
    expected = SmoothedCrossEntropy()(labels, model(ids), sample_weight=rows)
    np.testing.assert_allclose(found, [expected] * 3, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "hint"), [("from_logits", "always logits"), ("label_smoothing", "give smoothing")]
)
def test_arguments_of_keras_cross_entropy_are_refused_with_a_hint(name, hint):
    with pytest.raises(TypeError, match=f"SmoothedCrossEntropy has no argument {name}: .*{hint}"):
        SmoothedCrossEntropy(**{name: 0.1})
