"""The forward pass with a shortlist: the output layer computes only the candidates of a request.

A search runs on the numbers of the candidates. It needs no change, because pad, unk, bos and eos
are the first four candidates and keep their ids.
"""

import tensorflow as tf

from tfformer.inference.transformer import Inference


class ShortlistInference(Inference):
    """The forward pass for the sentences of one request, with logits only for their candidates.

    The C candidates of the whole request are numbered in the order of their ids. Their columns of
    the output projection are gathered once. A search runs on these numbers: the logits of a step
    are [B, W, C], -inf where the sentence itself does not have the candidate. So log-probabilities
    are over a sentence's own candidates, and other sentences of the batch do not change them.

    Args:
        inference_layer, weights: as for `Inference`.
        table, always: `candidates` and `always` of a `Shortlist`, tensors or variables.
        source_ids: int32 [B, S], the sentences.
    """

    def __init__(self, inference_layer, weights, table, always, source_ids):
        super().__init__(inference_layer, weights)
        table, always = tf.convert_to_tensor(table), tf.convert_to_tensor(always)
        batch, size = tf.shape(source_ids)[0], self.vocabulary_size
        # 1. The allowed pieces of each sentence: boolean [B, V].
        own = tf.gather(table, source_ids)
        own = own + size * tf.range(batch)[:, None, None]
        places = tf.reshape(own, [-1, 1])  # in [B * V]
        may = _with(tf.zeros([size], tf.bool), always[:, None])
        may = _with(tf.tile(may, [batch]), places)
        may = tf.reshape(may, tf.stack([batch, size]))  # [B, V]
        # 2. The pieces allowed in any sentence, in order: int32 [C].
        candidates = tf.cast(tf.where(tf.reduce_any(may, axis=0))[:, 0], tf.int32)
        self.candidates = candidates
        self.output = inference_layer.output.chosen(self.weights, candidates)
        mine = tf.gather(may, candidates, axis=1)
        self.absent = tf.where(mine, 0.0, float("-inf"))

    def start(self, source_ids, width):
        """As `Inference.start`, but the memory also has `absent`, float32 [B, C]."""
        state = super().start(source_ids, width)
        return state._replace(memory={**state.memory, "absent": self.absent})

    def vocabulary_ids(self, ids):
        return tf.gather(self.candidates, ids)

    def _step_logits(self, x, attention, batch, width, memory):
        shape = tf.stack([batch, width, tf.size(self.candidates)])  # [B, W, C]
        return tf.reshape(self.output(x), shape) + memory["absent"][:, None]  # [B, W, C]


def _with(mask, places):
    """A boolean mask [N], also set to True at `places` [M, 1]."""
    return tf.tensor_scatter_nd_update(mask, places, tf.ones(tf.shape(places)[:1], tf.bool))
