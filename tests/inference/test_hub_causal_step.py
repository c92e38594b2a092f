"""The step over a decoder-only KerasHub model gives the logits of the whole model."""

import hub
import numpy as np
import pytest
import tensorflow as tf

from tfformer.inference.keras_hub_causal import KINDS, KerasHubCausalInference
from tfformer.inference.keras_hub_common import kind_of
from tfformer.search.loop import grow_cache

W, STEPS = 3, 5
# Prompts of different lengths, in KerasHub's ids; the model adds bos.
PROMPTS = [9, 31, 7, 55, 12, 83, 40], [77, 21, 6]


@pytest.mark.slow
@pytest.mark.parametrize("make", hub.CAUSAL.values(), ids=hub.CAUSAL)
def test_cached_steps_after_prompts_equal_the_whole_model(make, rng):
    model = make()
    inference = KerasHubCausalInference(kind_of(model, KINDS))
    special = inference.special_ids
    longest = max(len(prompt) for prompt in PROMPTS) + 1
    rows = [[0] * (longest - 1 - len(ids)) + [2] + [n + 4 for n in ids] for ids in PROMPTS]
    prompt = tf.constant(rows, tf.int32)
    state = inference.prefill(prompt, W)
    assert state.cache.shape == (2, longest, W * inference.kind.cache.numbers)
    state = state._replace(cache=grow_cache(state.cache, STEPS))

    # Each hypothesis continues a random beam.
    size = model.backbone.vocabulary_size
    tokens = rng.integers(5, size, size=(2, STEPS, W))
    ancestors = np.stack([rng.integers(0, W, size=(2, W)) for _ in range(STEPS)], axis=2)
    paths, beams = np.zeros([2, W, 0], int), np.zeros([2, W, 0], int)
    for step in range(STEPS):
        position = longest - 1 + step
        if step:
            parents = ancestors[:, :, step]
            paths = np.take_along_axis(paths, parents[:, :, None], axis=1)
            beams = np.take_along_axis(beams, parents[:, :, None], axis=1)
            paths = np.concatenate([paths, tokens[:, step][:, :, None]], axis=2)
        own = np.tile(np.arange(W)[:, None], [2, 1, 1]) if step else np.zeros([2, W, 1], int)
        beams = np.concatenate([beams, own], axis=2)
        ids = tokens[:, step] + 4 if step else np.tile(prompt[:, -1:], [1, W])
        # The prompt is in the first beam; padding is in none.
        read = np.tile((prompt.numpy()[:, None, :-1] != 0)[..., None], [1, W, 1, 1])
        read = np.pad(read, [(0, 0), (0, 0), (0, 0), (0, W - 1)])
        there = np.concatenate([read, beams[..., None] == np.arange(W)], axis=2)
        visible = np.pad(there, [(0, 0), (0, 0), (0, longest + STEPS - there.shape[2]), (0, 0)])
        found = inference.step(tf.constant(ids, tf.int32), position, tf.constant(visible), state)
        assert found.logits.shape == (2, W, size + 4)
        state = state._replace(cache=found.cache)
        for row, known in enumerate(PROMPTS):
            for beam in range(W):
                whole = np.array([[special.bos, *known, *paths[row, beam]]], "int32")
                inputs = {"token_ids": whole, "padding_mask": np.ones_like(whole)}
                expected = model(inputs, training=False).numpy()[0, -1]
                logits = found.logits[row, beam].numpy()
                np.testing.assert_allclose(logits[9:], expected[5:], atol=1e-4, rtol=1e-4)
                np.testing.assert_allclose(logits[3], expected[special.eos], atol=1e-4)

    # The same hypotheses by the uncached pass, which an export is compared with.
    begin = np.tile(rows[0], [W, 1])
    targets = np.concatenate([begin, paths[0] + 4], axis=1).astype("int32")
    whole = inference.logits(tf.constant(targets))
    np.testing.assert_allclose(whole[:, -1, 9:], found.logits[0, :, 9:], atol=1e-4, rtol=1e-4)
    labels = tf.constant(np.concatenate([targets[:, 1:], np.full([W, 1], 3)], axis=1), tf.int32)
    log_probs = inference.log_probs(tf.constant(targets), labels, {})
    expected = tf.gather(tf.nn.log_softmax(whole), labels, batch_dims=2)
    np.testing.assert_allclose(log_probs, expected, atol=1e-4)
