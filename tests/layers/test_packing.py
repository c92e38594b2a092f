"""Computing without padding gives the same logits, loss and gradients as with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from variants import VARIANTS, make

from tfformer import SmoothedCrossEntropy, TokenAccuracy, Transformer
from tfformer.layers.packing import without_padding
from training.step.adam import Adam
from training.step.parallel import in_parts

B, S, T, V = 5, 7, 11, 17


@pytest.fixture
def batch(rng):
    """Rows of many lengths; the third has only padding, as in the last batch of a bucket."""
    source_lengths, target_lengths = [7, 2, 0, 1, 5], [3, 11, 0, 2, 1]
    source = rng.integers(4, V, (B, S)) * (np.arange(S) < np.array(source_lengths)[:, None])
    y = rng.integers(4, V, (B, T)) * (np.arange(T) < np.array(target_lengths)[:, None])
    target = np.pad(y, ((0, 0), (1, 0)), constant_values=2)[:, :-1] * (y != 0)
    as_ids = lambda x: x.astype("int32")  # noqa: E731
    return {"source_ids": as_ids(source), "target_ids": as_ids(target)}, as_ids(y)


def gradients(model, inputs, labels):
    return logits_and_gradients(model, inputs, labels)[1:]


def logits_and_gradients(model, inputs, labels):
    """(logits, loss, gradients)."""
    with tf.GradientTape() as tape:
        logits = model(inputs)
        loss = SmoothedCrossEntropy()(labels, logits)
    return logits, loss, tape.gradient(loss, model.trainable_variables)


def dense(gradient):
    return tf.convert_to_tensor(gradient).numpy()


@pytest.mark.parametrize("variant", VARIANTS)
def test_packed_logits_and_gradients_equal_the_padded_batch(randomise, batch, variant):
    model = randomise(make(variant))
    inputs, labels = batch
    packed, packed_labels = without_padding(inputs, labels)
    tokens = labels != 0
    count = tokens.sum()
    np.testing.assert_array_equal(packed_labels[:count], labels[tokens])
    np.testing.assert_array_equal(packed_labels[count:], 0)
    whole, loss, expected = logits_and_gradients(model, inputs, labels)
    logits, packed_loss, actual = logits_and_gradients(model, packed, packed_labels)
    assert logits.shape == (*packed_labels.shape, model.config.target_vocabulary_size)
    np.testing.assert_allclose(logits[:count], whole.numpy()[tokens], atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(packed_loss, loss, rtol=1e-5)
    for variable, a, b in zip(model.trainable_variables, actual, expected, strict=True):
        np.testing.assert_allclose(dense(a), dense(b), atol=1e-5, rtol=1e-3, err_msg=variable.path)


def test_padding_positions_after_the_tokens_change_nothing(randomise, batch):
    """So a compiler can get the same number of positions for each batch."""
    model = randomise(make())
    inputs, labels = batch
    packed, packed_labels = without_padding(inputs, labels)
    longer = dict(packed)
    for side, padding in (("source", [9, 13, 9]), ("target", [4, 5])):
        longer[f"{side}_places"] = np.concatenate([packed[f"{side}_places"], padding])
    longer_labels = np.concatenate([packed_labels, [0, 0]])
    loss, expected = gradients(model, packed, packed_labels)
    longer_loss, actual = gradients(model, longer, longer_labels)
    np.testing.assert_allclose(longer_loss, loss, rtol=1e-6)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(dense(a), dense(b), atol=1e-6)


def test_a_batch_of_padding_alone_has_no_loss_and_no_gradient(randomise, batch):
    model = randomise(make())
    nothing = [{name: 0 * ids for name, ids in batch[0].items()}, 0 * batch[1]]
    loss, found = gradients(model, *without_padding(*nothing))
    assert loss == 0
    assert all((dense(gradient) == 0).all() for gradient in found)


@pytest.mark.parametrize(("tokens", "kept"), [(0, 16), (1, 16), (16, 16), (17, 32), (33, 35)])
def test_packed_length_is_padded_to_a_multiple_of_16(tokens, kept):
    """Padding after the tokens, up to a multiple of 16, if there is any."""
    ids = np.zeros(35, "int32")
    ids[3 * np.arange(tokens) % 35] = 7
    inputs = dict.fromkeys(("source_ids", "target_ids"), ids.reshape(5, 7))
    packed, labels = without_padding(inputs, ids.reshape(5, 7))
    places = packed["source_places"].numpy()
    assert places.shape == (kept,) and len(set(places)) == kept
    np.testing.assert_array_equal(places[:tokens], np.flatnonzero(ids))
    np.testing.assert_array_equal(labels, 7 * (np.arange(kept) < tokens))


@pytest.mark.slow
@pytest.mark.parametrize("passes", [1, 2])
def test_parts_packed_separately_train_as_the_whole_batch(randomise, batch, passes):
    """Each part packed separately, in two passes, one part with padding only: equal to the whole
    batch."""
    inputs, labels = ({k: v[:4] for k, v in batch[0].items()}, batch[1][:4])
    for ids in (*inputs.values(), labels):
        ids[2:] = 0
    element = [np.tile(ids, (passes, 1)) for ids in (*inputs.values(), labels)]
    dataset = tf.data.Dataset.from_tensors((dict(zip(inputs, element, strict=False)), element[2]))
    found = []
    for parts, cores in ((1, 1), (2, 1), (1, 2)):
        keras.utils.set_random_seed(5)
        config = make(dropout=0.0, num_encoder_layers=1, num_decoder_layers=1).config
        model = in_parts(Transformer)(
            config, parts=parts, cores=cores, passes=passes, without_padding=without_padding
        )
        loss = SmoothedCrossEntropy(r_drop=5.0 if passes == 2 else 0.0)
        model.compile(Adam(0.01, epsilon=1e-4), loss, metrics=[TokenAccuracy()], jit_compile=False)
        history = model.fit(dataset.repeat(2), verbose=0, shuffle=False).history
        found.append((history, model.get_weights()))
    (one, weights), *split = found
    for two, others in split:
        for name in one:
            np.testing.assert_allclose(two[name], one[name], rtol=1e-5)
        for a, b in zip(weights, others, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_no_position_sees_a_later_token(randomise, batch):
    model = randomise(make())
    inputs, labels = batch
    packed, _ = without_padding(inputs, labels)
    changed = dict(packed)
    # The last token of the longest target, which is in the middle of the packed ones.
    changed["target_ids"] = inputs["target_ids"].copy()
    changed["target_ids"][1, T - 1] = 4 + (changed["target_ids"][1, T - 1] - 3) % (V - 4)
    differs = (model(packed).numpy() != model(changed).numpy()).any(axis=-1)
    assert np.flatnonzero(differs).tolist() == [3 + T - 1]


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_close_to_float32(randomise, batch, dtype):
    model = randomise(make())
    half = make(dtype=dtype)
    half.set_weights(model.get_weights())
    packed, _ = without_padding(*batch)
    logits = half(packed)
    assert logits.dtype == dtype.removeprefix("mixed_")
    expected = model(packed).numpy()
    assert np.abs(tf.cast(logits, "float32") - expected).mean() < 0.05 * np.abs(expected).mean()
