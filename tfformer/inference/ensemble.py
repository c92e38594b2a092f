"""An ensemble: searches several models as one, by the mean of their predictions at each step."""

import tensorflow as tf

from tfformer.config.search_options import ENSEMBLE_MEANS
from tfformer.inference.cached import label_log_probs
from tfformer.search.step import State, StepResult

PROBABILITIES, LOG_PROBABILITIES = ENSEMBLE_MEANS
# The minimum normal float32. It replaces all smaller probabilities.
MINIMUM = 1.2e-38


def mixed(logits, mean):
    """Combine the logits of several models, float32 [..., V] each.

    `"probabilities"`: log((p_1 + ... + p_M) / M), which is normalised. A token stays probable if
    one model is sure of it. `"log-probabilities"`: (l_1 + ... + l_M) / M, whose softmax is the
    geometric mean of the p. A token becomes improbable if one model rejects it.

    A `repetition_penalty` divides positive logits and multiplies others. Those of
    `"probabilities"` are log-probabilities, never positive, so it only multiplies.
    """
    logits = [tf.cast(one, tf.float32) for one in logits]
    if mean == LOG_PROBABILITIES:
        return tf.add_n(logits) / len(logits)
    total = tf.add_n([tf.nn.softmax(one) for one in logits])
    return tf.math.log(tf.maximum(total / len(logits), MINIMUM))


class Ensemble:
    """Makes several models searchable as one by `tfformer.search`.

    Args:
        members: the forward passes, each an `Inference`, with the same vocabulary.
        mean: one of `ENSEMBLE_MEANS`, see `mixed`.
    """

    def __init__(self, members, mean):
        self.members, self.mean = members, mean
        self.vocabulary_size = members[0].vocabulary_size

    def memory(self, source_ids):
        """source_ids [B, S] -> the memory of each member's decoder."""
        return [member.memory(source_ids) for member in self.members]

    def start(self, source_ids, width):
        """The `State` of a search with W = `width` beams; memory and cache are lists by member."""
        rows, before = tf.shape(source_ids)[0], 0
        caches = []
        for member in self.members:
            caches.append(member.caches(rows, width, before))
            before += len(tf.nest.flatten(caches[-1]))
        return State(self.memory(source_ids), caches)

    def step(self, ids, position, visible, state):
        """The step function of `tfformer.search`: combined logits, and the mean attention."""
        found = [
            member.step(ids, position, visible, State(memory, cache))
            for member, memory, cache in zip(self.members, *state, strict=True)
        ]
        attention = _mean(one.attention for one in found)
        logits = mixed([one.logits for one in found], self.mean)
        return StepResult(logits, [one.cache for one in found], attention)

    def vocabulary_ids(self, ids):
        """Convert ids of a search to ids of the vocabulary: no change."""
        return ids

    def decode(self, target_ids, memory):
        """target_ids [B, T] -> logits float32 [B, T, V], and the mean attention,
        float32 [B, T, S]."""
        found = [
            member.decode(target_ids, own) for member, own in zip(self.members, memory, strict=True)
        ]
        logits, attention = zip(*found, strict=True)
        return mixed(logits, self.mean), _mean(attention)

    def log_probs(self, target_ids, labels, memory, block=1024):
        """log P(label) at all positions of target_ids [B, T], float32 [B, T]."""
        rows = [
            member.rows(target_ids, own) for member, own in zip(self.members, memory, strict=True)
        ]

        def logits(rows):
            pairs = zip(self.members, rows, strict=True)
            return mixed([member.logits_of(own) for member, own in pairs], self.mean)

        return label_log_probs(rows, labels, logits, block)


def _mean(attention):
    attention = [*attention]
    return tf.add_n(attention) / len(attention)
