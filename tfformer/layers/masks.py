"""Attention masks. A mask is boolean, True = may be attended to; layers make theirs here.

An attention mask broadcasts to the scores [B, H, T, S]: a query (T) attends to the keys (S) where
the mask is True. `attention_mask` combines a padding mask [B, S] with a causal mask [T, S]. Inputs
may have more axes before T, as pieces of texts [B, P, T, D] have; scores and masks then have them
too.
"""

import functools
import operator

from keras import ops

from tfformer.config import PAD


def padding_mask(ids):
    """True where `ids` [B, S] is a token, False where it is padding (id 0). Shape [B, S]."""
    return ops.not_equal(ids, PAD)


def causal_mask(length):
    """Position t may attend to positions up to and including t. Shape [length, length].

    `length` may be an integer or a scalar tensor. (Vaswani et al. 2017, section 3.2.3)
    """
    positions = ops.arange(length)
    return positions[:, None] >= positions[None, :]


def attention_mask(key_mask=None, causal_length=None, pairs=None):
    """Combine padding, causality and other pairs into one attention mask.

    Args:
        key_mask: boolean [..., S], True = token, or None.
        causal_length: T of a causal self-attention (then S = T), or None.
        pairs: boolean [..., T, S], True = query t may attend to key s, or None.

    Returns:
        A boolean that broadcasts to [..., H, T, S], or None if nothing is hidden.
    """
    masks = []
    if key_mask is not None:
        masks.append(ops.cast(key_mask, "bool")[..., None, None, :])  # [..., 1, 1, S]
    if causal_length is not None:
        masks.append(causal_mask(causal_length))
    if pairs is not None:
        masks.append(ops.cast(pairs, "bool")[..., None, :, :])  # [..., 1, T, S]
    return functools.reduce(operator.and_, masks) if masks else None


def check_mask(name, mask, x):
    """The padding mask of x [..., T, D] as a tensor [..., T]; None stays None.

    Raises:
        ValueError: the mask has other axes.
    """
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    shape, expected = sizes_of(mask), sizes_of(x)
    if None not in (shape, expected) and not fits(shape, expected[:-1]):
        axes = "[B, T]" if len(expected) == 3 else "[..., T]"
        raise ValueError(f"{name} must be {axes} for an input of {expected}, got {shape}")
    return mask


def sizes_of(x):
    """The shape of a tensor, a tuple; None if the number of its axes is unknown."""
    try:
        return tuple(x.shape)
    except ValueError:  # in a `tf.function`
        return None


def fits(mask, shape):
    """Whether a mask of shape `mask` fits these axes; an axis of size 1 broadcasts."""
    return may_be([None if size == 1 else size for size in mask], shape)


def may_be(sizes, others):
    """Whether two shapes may be equal; None stands for any size."""
    return len(sizes) == len(others) and all(
        None in pair or pair[0] == pair[1] for pair in zip(sizes, others, strict=True)
    )
