"""Distillation by distributions: a student learns what its teachers expect of each next token.

A reference says which word has come, and nothing of the others that could have. A teacher says of
all words how likely they are, given the same words before. Several say it better than one: what
they know together, as an ensemble, one model learns, which is served at the cost of one.
"""

import tensorflow as tf


class Teachers:
    """(1 - w) times the loss of a token plus w times the cross-entropy

        - sum_v q_v log p_v, q = 1/n sum_i q_i

    of the student's p to the mean q of the distributions of n teachers, who read what the student
    reads (Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.1; for the mean of
    several, Hinton et al. 2015, "Distilling the Knowledge in a Neural Network").

    Teachers have no dropout and learn nothing. Neither Keras nor a checkpoint sees their weights.

    Args:
        models: the teachers, each a `Transformer` of the student's vocabulary.
        weight: w in [0, 1].

    Call arguments:
        loss: float32 [B, T] or, of a batch without padding, [M]: of each token.
        logits: the student's, of that shape and [V].
        inputs: of the batch, padded or packed, as the student has read them.
        passes: how often they hold their rows, one copy after the other (R-Drop): the teachers,
            without dropout, read one copy. Default 1.

    Returns:
        float32 of the shape of `loss`.
    """

    def __init__(self, models, weight):
        self.models, self.weight = models, weight

    def __call__(self, loss, logits, inputs, passes=1):
        expected = 0.0
        if passes > 1:
            inputs = {name: ids[: tf.shape(ids)[0] // passes] for name, ids in inputs.items()}
        for model in self.models:
            own = tf.nn.softmax(tf.cast(model(inputs, training=False), tf.float32))
            expected += own / len(self.models)
        if passes > 1:
            expected = tf.concat([expected] * passes, axis=0)
        expected = tf.stop_gradient(expected)
        taught = tf.nn.softmax_cross_entropy_with_logits(expected, tf.cast(logits, tf.float32))
        return (1 - self.weight) * loss + self.weight * taught
