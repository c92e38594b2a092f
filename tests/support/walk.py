"""Runs hypotheses through a step function, one position at a time, while they move among the
beams."""

import numpy as np
import tensorflow as tf


def steps(inference, source_ids, beams, places):
    """Logits [B, W, T, V] of the hypotheses `beams` [B, W, T]; at position t, hypothesis w is in
    the beam `places[t][w]`."""
    source_ids = tf.constant(source_ids)
    (size, width, length), sources = beams.shape, source_ids.shape[1]
    state = inference.start(source_ids, width)
    room = [[0, 0], [0, 0], [0, length], [0, 0]]
    state = state._replace(cache=tf.nest.map_structure(lambda x: tf.pad(x, room), state.cache))
    outputs = []
    for t in range(length):
        ids = np.zeros((size, width), "int32")
        visible = np.zeros((size, width, length + 1, width), bool)
        for w in range(width):
            ids[:, places[t][w]] = beams[:, w, t]
            for past in range(t + 1):
                visible[:, places[t][w], past, places[past][w]] = True
        result = inference.step(tf.constant(ids), tf.constant(t), tf.constant(visible), state)
        assert [x.shape for x in tf.nest.flatten(result.cache)] == [
            x.shape for x in tf.nest.flatten(state.cache)
        ]
        assert result.attention.shape == (size, width, sources)
        np.testing.assert_allclose(tf.reduce_sum(result.attention, -1), 1, rtol=1e-5)
        state = state._replace(cache=result.cache)
        outputs.append(np.take(result.logits.numpy(), places[t], axis=1))
    return np.stack(outputs, axis=2)
