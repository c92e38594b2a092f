"""Searches any model that returns logits, `model(ids [N, T]) -> [N, T, V]`, without a cache."""

import keras
import tensorflow as tf

from tfformer.config import PAD
from tfformer.search.special_ids import SpecialIds
from tfformer.search.step import State, StepResult


class Uncached:
    """Makes a model without a cache searchable.

    Each step computes the whole prefix of each hypothesis again. So n tokens cost n forward passes
    over up to n positions. This works with every causal model, because prefixes are padded on the
    right, and no earlier position attends to that padding.

    Args:
        model: a function, or a Keras model, of int32 [N, T] that returns logits [N, T, V]; with a
            source, of {"source_ids": [N, S], "target_ids": [N, T]}. It must be causal.
        special_ids: the model's own `SpecialIds`. Default: those of a search.

    Raises:
        ValueError: an id of `special_ids` is negative or not an integer, or eos is None.

    Example:
        step = Uncached(model)
        state = step.prefill(prompt, width=1)
        found = tfformer.greedy_search(step.step, state, len(prompt), 20, prompt=prompt)
    """

    def __init__(self, model, special_ids=None):
        self.model = model
        self.special_ids = SpecialIds() if special_ids is None else SpecialIds(*special_ids)
        self.special_ids.check()

    def vocabulary_ids(self, ids):
        """Convert ids of a search to ids of the model."""
        return self.special_ids.to_model(ids)

    def start(self, source_ids, width):
        """The `State` before the first step: source_ids [B, S], and a cache for W tokens."""
        empty = tf.zeros([tf.shape(source_ids)[0], 1, width], tf.int32)
        return State({"source_ids": source_ids}, empty)

    def prefill(self, prompt, width, state=None):
        """The `State` after a prompt, int32 [B, P] in ids of a search, padded with 0 on the left.

        Its cache [B, P, W] contains all tokens but the last, in the first beam. With a source,
        `state` comes from `start`.
        """
        before = tf.pad(prompt[:, :-1], [[0, 0], [0, 1]])  # [B, P]
        cache = tf.pad(before[:, :, None], [[0, 0], [0, 0], [0, width - 1]])  # [B, P, W]
        return State({} if state is None else state.memory, cache)

    def step(self, ids, position, visible, state):
        """The step function of `tfformer.search`; its cache holds the tokens, [B, C, W]."""
        now = tf.range(tf.shape(visible)[2]) == position
        tokens = tf.where(now[:, None], ids[:, None], state.cache)  # [B, C, W]
        # 1. The prefix of each hypothesis: the tokens of its ancestors.
        seen = visible[:, :, : position + 1]  # [B, W, P, W]
        prefixes = tf.where(seen, tokens[:, None, : position + 1], 0)  # [B, W, P, W]
        prefixes = tf.reduce_sum(prefixes, axis=-1)  # [B, W, P]
        lengths = tf.reduce_sum(tf.cast(tf.reduce_any(seen, -1), tf.int32), axis=-1)  # [B, W]
        # 2. Move the padding of shorter prompts from the left to the right.
        columns = tf.range(position + 1)
        from_left = tf.minimum(columns + (position + 1 - lengths)[..., None], position)
        prefixes = tf.gather(prefixes, from_left, batch_dims=2)  # [B, W, P]
        prefixes = tf.where(columns < lengths[..., None], prefixes, PAD)
        # 3. The model's logits after the last token of each.
        batch, width, length = tf.unstack(tf.shape(prefixes))
        rows = tf.reshape(self.vocabulary_ids(prefixes), [batch * width, length])  # [B * W, P]
        logits = self._all_logits(rows, width, state.memory)  # [B * W, P, V]
        last = tf.reshape(lengths, [-1]) - 1  # [B * W]
        logits = self.special_ids.logits_to_search(tf.gather(logits, last, batch_dims=1))
        size = logits.shape[-1] or tf.shape(logits)[-1]
        return StepResult(tf.reshape(logits, [batch, width, size]), tokens)  # [B, W, V]

    def _all_logits(self, rows, width, memory):
        if "source_ids" in memory:
            source_ids = tf.repeat(memory["source_ids"], width, axis=0)  # [B * W, S]
            rows = {"source_ids": source_ids, "target_ids": rows}
        inference = {"training": False} if isinstance(self.model, keras.Layer) else {}
        return tf.cast(self.model(rows, **inference), tf.float32)
