"""`align`: the cross-attention weights of each token of a translation."""

import tensorflow as tf

from tfformer.inference.masks import padding_mask
from tfformer.service.signature import Signature, texts


def align(generation):
    """`source` and `target` [B] -> `attention` [B, T, S], `source_tokens`, `target_tokens`; and
    `truncated`, whether one of the texts was cut."""

    def answer(generation, source, target):
        source_ids, target_ids, labels, truncated = generation.forced(source, target)
        inference = generation.inference()
        _, attention = inference.decode(target_ids, inference.memory(source_ids))
        return {
            "attention": tf.where(padding_mask(labels)[:, :, None], attention, 0.0),
            "source_tokens": generation.tokenizer.source_pieces(source_ids),
            "target_tokens": generation.tokenizer.target_pieces(labels),
            "truncated": truncated,
        }

    function = generation.graph("align", texts("source", "target"), answer)
    return Signature("align", function, lambda samples: [samples.pairs])
