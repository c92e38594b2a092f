"""Guided attention: a penalty that pulls heads of the cross-attention to the diagonal, or to given
alignments."""

import tensorflow as tf

from tfformer.config import PAD

# How wide the diagonal is (Tachibana et al. 2017, section 4.1).
WIDTH = 0.2
# A logarithm of 0 has no gradient.
LEAST = 1e-9


class GuidedAttention:
    """weight times the mean over the guided heads of sum_s A_ts W_ts, of each target token t, with

        W_ts = 1 - exp(-(t / T - s / S)^2 / (2 g^2)), g = 0.2

    (Tachibana et al. 2017, section 4.1): attention far from the diagonal costs, near it nothing. T
    and S are the tokens of the target and of the source.

    Where the inputs say which words belong together, it is

        - sum_s a_ts log A_ts

    in its place (Chen et al. 2016, "Guided Alignment Training for Topic-Aware Neural Machine
    Translation", section 3.1): a_ts are the same for all tokens s whose words are linked to that of
    t, and sum to 1. A token of a word without a link costs nothing.

    Args:
        weight: of the penalty beside the loss of a token.
        heads: of each decoder layer, the first; 0: all.

    Call arguments:
        attention: float32 [B, H, T, S] of each decoder layer.
        inputs: {"source_ids": [B, S], "target_ids": [B, T]}, and perhaps what
            `training.data.links.Links.inputs` gives.

    Returns:
        The sum over the tokens of the targets, a scalar.
    """

    def __init__(self, weight, heads):
        self.weight, self.heads = weight, heads

    def __call__(self, attention, inputs):
        if "links" in inputs:
            cost = -linked(inputs["source_words"], inputs["target_words"], inputs["links"])
            attention = [tf.math.log(weights + LEAST) for weights in attention]
        else:
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


def linked(source_words, target_words, links):
    """The attention that links ask for: float32 [B, T, S], whose rows sum to 1 or, of a token whose
    word has no link, to 0.

    Args:
        source_words, target_words, links: as `training.data.links.Links.inputs` gives them.
    """
    pairs = tf.reshape(links, [tf.shape(links)[0], -1, 2])  # [B, L, 2]
    source, target = (
        tf.cast(words[:, None] == pairs[..., side, None], tf.float32)  # [B, L, S] and [B, L, T]
        for side, words in enumerate((source_words, target_words))
    )
    # Of no word, 0, and no link, 0 too.
    source *= tf.cast(source_words > 0, tf.float32)[:, None]
    found = tf.minimum(tf.einsum("blt,bls->bts", target, source), 1.0)
    return tf.math.divide_no_nan(found, tf.reduce_sum(found, axis=2, keepdims=True))
