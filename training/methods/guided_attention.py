"""Guided attention: a penalty for cross-attention heads that are far from the diagonal, or from
given alignments."""

from keras import ops

from tfformer.config import PAD

# How wide the diagonal is (Tachibana et al. 2017, section 4.1).
WIDTH = 0.2
# Added before the logarithm, because log 0 has no gradient.
MINIMUM = 1e-9


class GuidedAttention:
    """The penalty of guided attention: `weight` times the mean over the guided heads.

    For each target token t, a head costs sum_s A_ts W_ts with

        W_ts = 1 - exp(-(t / T - s / S)^2 / (2 g^2)), g = 0.2

    (Tachibana et al. 2017, section 4.1). Attention far from the diagonal costs most; on the
    diagonal it costs nothing. T and S are the numbers of target and source tokens.

    If the inputs contain links between words, a head costs

        - sum_s a_ts log A_ts

    instead (Chen et al. 2016, "Guided Alignment Training for Topic-Aware Neural Machine
    Translation", section 3.1). a_ts is the same for all tokens s whose words are linked to the word
    of t, and sums to 1 over s. A target token whose word has no link costs nothing.

    Args:
        weight: the weight of the penalty in the loss of a token.
        heads: number of guided heads, the first of each decoder layer; 0: all.

    Call arguments:
        attention: float32 [B, H, T, S] of each decoder layer.
        inputs: {"source_ids": [B, S], "target_ids": [B, T]}, and optionally the result of
            `training.data.links.Links.inputs`.

    Returns:
        The sum over the target tokens, a scalar.
    """

    def __init__(self, weight, heads):
        self.weight, self.heads = weight, heads

    def __call__(self, attention, inputs):
        if "links" in inputs:
            cost = -linked(inputs["source_words"], inputs["target_words"], inputs["links"])
            attention = [ops.log(weights + MINIMUM) for weights in attention]
        else:
            cost = off_the_diagonal(inputs["source_ids"], inputs["target_ids"])  # [B, T, S]
        of_layers = [
            ops.sum(weights[:, : self.heads or None] * cost[:, None], axis=[2, 3])
            for weights in attention
        ]
        # [B, heads] for each layer. Mean over heads and layers, then sum over the rows.
        return self.weight * ops.sum(ops.mean(ops.concatenate(of_layers, axis=1), axis=1))


def off_the_diagonal(source_ids, target_ids):
    """W_ts for each pair of tokens, float32 [B, T, S]; 0 if one of them is padding."""
    places, real = [], []
    for ids in (source_ids, target_ids):
        tokens = ops.cast(ops.not_equal(ids, PAD), "float32")
        count = ops.sum(tokens, axis=1, keepdims=True)
        at = ops.cast(ops.arange(ops.shape(ids)[1]), "float32")
        places.append(at / ops.maximum(count, 1.0))  # [B, S] or [B, T]
        real.append(tokens)
    distance = places[1][:, :, None] - places[0][:, None]
    cost = 1 - ops.exp(-ops.square(distance) / (2 * WIDTH**2))
    return cost * real[1][:, :, None] * real[0][:, None]


def linked(source_words, target_words, links):
    """The attention a_ts that links define: float32 [B, T, S].

    A row sums to 1. If the word of a token has no link, its row is 0.

    Args:
        source_words, target_words, links: see `training.data.links.Links.inputs`.
    """
    pairs = ops.reshape(links, (ops.shape(links)[0], -1, 2))  # [B, L, 2]
    source, target = (
        ops.cast(ops.equal(words[:, None], pairs[..., side, None]), "float32")  # [B, L, S or T]
        for side, words in enumerate((source_words, target_words))
    )
    # 0 means no word, and in links no link: these must not match.
    source *= ops.cast(ops.greater(source_words, 0), "float32")[:, None]
    found = ops.minimum(ops.einsum("blt,bls->bts", target, source), 1.0)
    return ops.divide_no_nan(found, ops.sum(found, axis=2, keepdims=True))
