"""Guided attention: a penalty that pulls heads of the cross-attention to the diagonal."""

import tensorflow as tf

from tfformer.config import PAD

# How wide the diagonal is (Tachibana et al. 2017, section 4.1).
WIDTH = 0.2


class GuidedAttention:
    """weight times the mean over the guided heads of sum_s A_ts W_ts, of each target token t, with

        W_ts = 1 - exp(-(t / T - s / S)^2 / (2 g^2)), g = 0.2

    (Tachibana et al. 2017, section 4.1): attention far from the diagonal costs, near it nothing. T
    and S are the tokens of the target and of the source.

    Args:
        weight: of the penalty beside the loss of a token.
        heads: of each decoder layer, the first; 0: all.

    Call arguments:
        attention: float32 [B, H, T, S] of each decoder layer.
        inputs: {"source_ids": [B, S], "target_ids": [B, T]}.

    Returns:
        The sum over the tokens of the targets, a scalar.
    """

    def __init__(self, weight, heads):
        self.weight, self.heads = weight, heads

    def __call__(self, attention, inputs):
        cost = off_the_diagonal(inputs["source_ids"], inputs["target_ids"])  # [B, T, S]
        of_layers = [
            tf.reduce_sum(weights[:, : self.heads or None] * cost[:, None], axis=[2, 3])
            for weights in attention
        ]
        # [B, heads] of each layer: the mean over heads and layers, summed over the rows.
        return self.weight * tf.reduce_sum(tf.reduce_mean(tf.concat(of_layers, axis=1), axis=1))


def off_the_diagonal(source_ids, target_ids):
    """W_ts of each pair of tokens, 0 where one is padding: float32 [B, T, S]."""
    places, real = [], []
    for ids in (source_ids, target_ids):
        tokens = ids != PAD
        count = tf.math.count_nonzero(tokens, axis=1, keepdims=True, dtype=tf.float32)
        at = tf.cast(tf.range(tf.shape(ids)[1]), tf.float32)
        places.append(at / tf.maximum(count, 1.0))  # [B, S] or [B, T]
        real.append(tf.cast(tokens, tf.float32))
    distance = places[1][:, :, None] - places[0][:, None]
    cost = 1 - tf.exp(-tf.square(distance) / (2 * WIDTH**2))
    return cost * real[1][:, :, None] * real[0][:, None]
