"""What scheduled sampling needs on every backend: it replaces true tokens by the model's own."""

from keras import ops

from tfformer.config import BOS, EOS, PAD

# The number of mixed embeddings, as in Mihaylova and Martins 2019.
MIXED = 5
# Ids that never occur inside a target.
NEVER = (PAD, BOS, EOS)


def never(size):
    """A float32 [V] to add to logits [..., V], so that pad, bos and eos are never chosen."""
    return -1e9 * ops.sum(ops.one_hot(NEVER, size, dtype="float32"), axis=0)


def replaced(ids, own, inside):
    """The ids [B, T], from the second on replaced by `own` where `inside` is True; both are
    [B, T - 1]."""
    own = ops.where(inside, ops.cast(own, ids.dtype), ids[:, 1:])
    return ops.concatenate([ids[:, :1], own], axis=1)


def mixed(inputs, logits, inside):
    """The inputs with mixed ids and weights for each position, and ids to count replacements.

    In these ids, the likeliest token replaces the true one wherever tokens are mixed.

    Args:
        inputs: the inputs of a `Transformer`.
        logits: float32 [B, T - 1, V], of all tokens but the first.
        inside: boolean [B, T - 1], True = the token is replaced.
    """
    ids = inputs["target_ids"]
    best, own = ops.top_k(logits, MIXED)  # [B, T - 1, 5]
    own, weights = ops.cast(own, ids.dtype), ops.softmax(best)
    true = ops.repeat(ids[:, 1:, None], MIXED, axis=2)
    one = ops.one_hot(ops.zeros_like(ids), MIXED, dtype="float32")  # all weight on the first
    own = ops.where(inside[:, :, None], own, true)
    weights = ops.where(inside[:, :, None], weights, one[:, 1:])
    first = ops.repeat(ids[:, :1, None], MIXED, axis=2)
    read = {
        "mixed_ids": ops.concatenate([first, own], axis=1),
        "mixed_weights": ops.concatenate([one[:, :1], weights], axis=1),
    }
    return {**inputs, **read}, ops.concatenate([ids[:, :1], own[:, :, 0]], axis=1)
