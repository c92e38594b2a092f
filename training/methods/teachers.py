"""Word-level distillation: a student learns its teachers' distributions of each next token.

A reference gives only the correct next token. A teacher gives the probabilities of all tokens after
the same prefix. The mean of several teachers, an ensemble, is better than one teacher. The student
learns from the ensemble, but serving it costs only one model.
"""

import tensorflow as tf


class Teachers:
    """The loss with distillation: (1 - w) times the loss of a token plus w times the cross-entropy

        - sum_v q_v log p_v, q = 1/n sum_i q_i

    between the student's distribution p and the mean q of n teachers. The teachers read the same
    input as the student (Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.1;
    for the mean of several, Hinton et al. 2015, "Distilling the Knowledge in a Neural Network").

    Teachers run without dropout and are not trained. Their weights are neither tracked by Keras nor
    saved in checkpoints.

    Args:
        models: the teachers, each a `Transformer` with the student's vocabulary.
        weight: w in [0, 1].

    Call arguments:
        loss: the loss of each token, float32 [B, T]; [M] for a batch without padding.
        logits: the student's, of the same shape plus [V].
        inputs: the student's inputs, padded or packed.
        passes: the number of copies of the batch in the inputs, one after the other (R-Drop). The
            teachers have no dropout, so they read one copy. Default 1.

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
