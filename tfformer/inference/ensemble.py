"""Several models that are searched as one: at each step the mean of what they say comes next."""

import tensorflow as tf

from tfformer.inference.cached import label_log_probs
from tfformer.search.options import ENSEMBLE_MEANS
from tfformer.search.step import State, StepResult

PROBABILITIES, LOG_PROBABILITIES = ENSEMBLE_MEANS
# Of float32, the least that is no denormal: what is less probable counts as much.
LEAST = 1.2e-38


def mixed(logits, mean):
    """The logits of several models, float32 [..., V] each, as one's.

    `"probabilities"`: log((p_1 + ... + p_M) / M), which is normalised: what one of them is sure of
    stays likely. `"log-probabilities"`: (l_1 + ... + l_M) / M, of which the softmax is the
    geometric mean of the p: what one of them denies becomes unlikely.

    A `repetition_penalty` divides positive logits and multiplies others. Those of
    `"probabilities"` are log-probabilities, never positive, so it only multiplies.
    """
    logits = [tf.cast(one, tf.float32) for one in logits]
    if mean == LOG_PROBABILITIES:
        return tf.add_n(logits) / len(logits)
    total = tf.add_n([tf.nn.softmax(one) for one in logits])
    return tf.math.log(tf.maximum(total / len(logits), LEAST))


class Ensemble:
    """What `tfformer.search` asks of a model, by several.

    Args:
        members: the forward passes, `Inference` each, of one vocabulary.
        mean: one of `ENSEMBLE_MEANS`, see `mixed`.
    """

    def __init__(self, members, mean):
        self.members, self.mean = members, mean
        self.vocabulary_size = members[0].vocabulary_size

    def memory(self, source_ids):
        """source_ids [B, S] -> what each member's decoder needs of the source."""
        return [member.memory(source_ids) for member in self.members]

    def start(self, source_ids, width):
        """The `State` of a search with W = `width` beams; memory and cache are lists, by member."""
        rows, before = tf.shape(source_ids)[0], 0
        caches = []
        for member in self.members:
            caches.append(member.caches(rows, width, before))
            before += len(tf.nest.flatten(caches[-1]))
        return State(self.memory(source_ids), caches)

    def step(self, ids, position, visible, state):
        """The step function of `tfformer.search`: logits of all, and the mean of the attention."""
        found = [
            member.step(ids, position, visible, State(memory, cache))
            for member, memory, cache in zip(self.members, *state, strict=True)
        ]
        attention = _mean(one.attention for one in found)
        logits = mixed([one.logits for one in found], self.mean)
        return StepResult(logits, [one.cache for one in found], attention)

    def vocabulary_ids(self, ids):
        """The ids of a search as ids of the vocabulary: the same."""
        return ids

    def decode(self, target_ids, memory):
        """target_ids [B, T] -> logits float32 [B, T, V], and the mean of the attention,
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
