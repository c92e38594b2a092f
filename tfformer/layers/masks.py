"""Who may attend to whom. A mask is boolean, True = may be attended to; layers make theirs here.

An attention mask broadcasts to the scores [B, H, T, S]: a query (T) sees the keys (S) where the
mask is True. `attention_mask` makes it of a padding mask [B, S] and of causality, [T, S].
"""

from keras import ops

from tfformer.config import PAD


def padding_mask(ids):
    """True where `ids` [B, S] is a token, False where it is padding (id 0). Shape [B, S]."""
    return ops.not_equal(ids, PAD)


def causal_mask(length):
    """Position t may see the positions up to and including t. Shape [length, length].

    `length` may be an integer or a scalar tensor. (Vaswani et al. 2017, section 3.2.3)
    """
    positions = ops.arange(length)
    return positions[:, None] >= positions[None, :]


def attention_mask(key_mask=None, causal_length=None):
    """The one mask of an attention: padding and causality, merged.

    Args:
        key_mask: boolean [B, S], True = token, or None.
        causal_length: T of a causal self-attention (then S = T), or None.

    Returns:
        A boolean that broadcasts to [B, H, T, S], or None when all may be seen.
    """
    mask = None if key_mask is None else ops.cast(key_mask, "bool")[:, None, None, :]
    if causal_length is None:
        return mask
    causal = causal_mask(causal_length)
    return causal if mask is None else mask & causal
