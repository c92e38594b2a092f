"""`score`: the log-probability of a given translation."""

import tensorflow as tf

from tfformer.inference.masks import padding_mask
from tfformer.service.signature import Signature, texts


def score(generation):
    """`source` and `target` [B] -> `log_prob` of the target; its `length`, with eos; and
    `truncated`, whether one of the texts was cut."""

    def answer(generation, source, target):
        source_ids, target_ids, labels, truncated = generation.forced(source, target)
        inference = generation.inference()
        log_probs = inference.log_probs(target_ids, labels, inference.memory(source_ids))
        real = padding_mask(labels)
        # The code of a language is given: it has probability 1.
        counted = real & ~generation.is_code(labels, "target")
        return {
            "log_prob": tf.reduce_sum(tf.where(counted, log_probs, 0.0), axis=1),
            "length": tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
            "truncated": truncated,
        }

    function = generation.graph("score", texts("source", "target"), answer)
    return Signature("score", function, lambda samples: [samples.pairs])
