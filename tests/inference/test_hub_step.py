"""The step over a KerasHub model gives the logits of the whole model for the same tokens."""

import hub
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfformer.inference.keras_hub import KINDS, KerasHubInference
from tfformer.inference.keras_hub_common import kind_of, stock_slice_update

W, STEPS = 3, 5
configurations = pytest.mark.parametrize(
    "make",
    [pytest.param(make, id=name) for name, make in {**hub.SMALLEST, **hub.FURTHER}.items()],
)


def own_logits(model, texts, targets):
    """The logits [B, T + 1, V] of the model's own forward pass, for texts from its own
    preprocessor and for ids [B, T] after its own beginning of a target."""
    inputs = model.preprocessor.generate_preprocess(texts)
    inputs = {name: np.array(value) for name, value in inputs.items()}
    begins = inputs["decoder_padding_mask"][0].sum()
    begin = inputs["decoder_token_ids"][:, :begins]
    ids = np.concatenate([begin, targets], axis=1)
    inputs |= {"decoder_token_ids": ids, "decoder_padding_mask": np.ones_like(ids)}
    inputs = {name: value.astype("int32") for name, value in inputs.items()}
    return model(inputs, training=False).numpy()[:, begins - 1 :]


@pytest.mark.slow
@configurations
def test_cached_steps_equal_the_whole_model(make, rng):
    model = make()
    inference = KerasHubInference(kind_of(model, KINDS))
    special = inference.special_ids
    texts = [hub.TEXTS[4], hub.TEXTS[31]]
    tokenizer = model.preprocessor.tokenizer
    rows = [[int(n) + 4 for n in ids] + [3] for ids in tokenizer(texts)]
    source_ids = tf.ragged.constant(rows, tf.int32).to_tensor()

    # Each hypothesis continues a random beam.
    size = tokenizer.vocabulary_size()
    tokens = rng.integers(5, size, size=(2, STEPS, W))
    ancestors = np.stack([rng.integers(0, W, size=(2, W)) for _ in range(STEPS)], axis=2)
    state = inference.start(source_ids, W)
    state = state._replace(cache=tf.zeros([2, STEPS + 1, state.cache.shape[2]]))
    paths, beams = np.zeros([2, W, 0], int), np.tile(np.arange(W)[:, None], [2, 1, 1])
    for position in range(STEPS):
        ids = np.full([2, W], 2) if position == 0 else tokens[:, position] + 4
        if position:
            parents = ancestors[:, :, position]
            paths = np.take_along_axis(paths, parents[:, :, None], axis=1)
            beams = np.take_along_axis(beams, parents[:, :, None], axis=1)
            paths = np.concatenate([paths, tokens[:, position][:, :, None]], axis=2)
            beams = np.concatenate([beams, np.tile(np.arange(W)[:, None], [2, 1, 1])], axis=2)
        there = beams[..., None] == np.arange(W)  # [B, W, position + 1, W]
        missing = STEPS - position
        visible = np.pad(there, [(0, 0), (0, 0), (0, missing), (0, 0)])
        found = inference.step(tf.constant(ids, tf.int32), position, tf.constant(visible), state)
        state = state._replace(cache=found.cache)
        for beam in range(W):
            expected = own_logits(model, texts, paths[:, beam])[:, -1]
            np.testing.assert_allclose(found.logits[:, beam, 4 : 4 + size][:, 5:],
                                       expected[:, 5:size], atol=1e-4, rtol=1e-4)  # fmt: skip
            np.testing.assert_allclose(
                found.logits[:, beam, 3], expected[:, special.eos], atol=1e-4
            )
    # The same hypotheses by the uncached pass, which an export is compared with.
    targets = np.concatenate([np.full([2, 1], 2), paths[:, 1] + 4], axis=1).astype("int32")
    whole = inference.logits({"source_ids": source_ids, "target_ids": tf.constant(targets)})
    np.testing.assert_allclose(whole[:, -1, 9:], found.logits[:, 1, 9:], atol=1e-4, rtol=1e-4)
    labels = tf.constant(np.concatenate([paths[:, 1] + 4, np.full([2, 1], 3)], axis=1), tf.int32)
    log_probs = inference.log_probs(tf.constant(targets), labels, inference.memory(source_ids))
    expected = tf.gather(tf.nn.log_softmax(whole), labels, batch_dims=2)
    np.testing.assert_allclose(log_probs, expected, atol=1e-4)


def test_unsupported_model_is_refused():
    with pytest.raises(ValueError, match="T5Seq2SeqLM, T5GemmaSeq2SeqLM, BartSeq2SeqLM .* got int"):
        kind_of(7, KINDS)
    model = hub.bart()
    model.preprocessor = None
    with pytest.raises(ValueError, match="must have its preprocessor, got a BartSeq2SeqLM"):
        kind_of(model, KINDS)


def test_a_cache_is_written_by_stock_operations(rng):
    cache, new = tf.constant(rng.normal(size=(2, 7, 3))), tf.constant(rng.normal(size=(2, 2, 3)))
    own, said = keras.ops.slice_update(cache, [0, 4, 0], new), keras.ops.slice_update
    with stock_slice_update():
        write = tf.function(lambda at: keras.ops.slice_update(cache, [0, at, 0], new))
        graph = write.get_concrete_function(tf.TensorSpec([], tf.int32)).graph
        np.testing.assert_array_equal(write(4), own)
    assert not [op.type for op in graph.get_operations() if "Xla" in op.type]
    assert keras.ops.slice_update is said
