"""Positions inside self-attention: rotary positions, ALiBi and relative biases.

Sinusoids and learned positions are added to the embeddings once, before the first layer. The layers
here act inside each attention, and only on the distance between a key and its query. Rotary
positions rotate queries and keys before their product; ALiBi and the relative biases of T5 add a
number to the product.
"""

import math

import keras
import numpy as np
from keras import ops

from tfformer.config import ATTENTION_POSITIONS, number
from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.positions import frequencies_of, sinusoids

# The turns of a pair within `length` from which `Rotary` makes it slower, and leaves it as it is.
SLOW, FAST = 1, 4


class Places(Layer):
    """Base class of the layers below: rotates nothing and adds nothing."""

    def turned(self, x, positions):
        """Queries or keys [..., T, K], rotated for their `positions`, integers [T]."""
        return x

    def bias(self, queries, keys, causal):
        """The bias to add to the scores, float32 [H, T, S]; None: no bias.

        Args:
            queries, keys: the positions, integers [T] and [S].
            causal: whether keys after their query are hidden anyway.
        """
        return None


@keras.saving.register_keras_serializable("tfformer")
class Rotary(Places):
    """Rotates each pair (x_2i, x_2i+1) by the angle pos / base^(2i/K)  (Su et al. 2021, equation
    34). So the product of a query and a key depends only on their distance. No weights.

    With `factor`, a model can read longer texts than it was trained on, as Llama 3.1 does. A pair
    that turns at least 4 times within `length` positions stays as it is. One that turns at most
    once becomes slower by `factor`. Between them, the frequency is interpolated.

    Args:
        head_size: K, even.
        base: at least 1. Default 10000, as in the paper.
        factor: at least 1. Default 1: none.
        length: the number of positions before the extension. Default 8192, as in Llama 3.1.

    Raises:
        ValueError: `head_size` is not an even integer of at least 1, or a number is too small.

    Example, a quarter of a circle:
        >>> x = Rotary(head_size=2).turned(np.array([[1.0, 0.0]]), np.array([math.pi / 2]))
        >>> print(np.array(x).round(3))
        [[-0. 1.]]
    """

    def __init__(self, head_size, base=10000.0, factor=1.0, length=8192, **kwargs):
        super().__init__(**kwargs)
        check_whole(head_size=head_size, length=length)
        number("base", base, 1, math.inf)
        number("factor", factor, 1, math.inf)
        if head_size % 2:
            raise ValueError(f"head_size must be even, got {head_size}")
        self.head_size, self.base, self.factor, self.length = head_size, base, factor, length

    def angles(self, positions):
        """(sin, cos) of each pair at each position, side by side, float32 [T, K]."""
        frequencies = frequencies_of(self.head_size, self.base)
        turns = self.length * frequencies / (2 * math.pi)  # within `length`
        kept = np.clip((turns - SLOW) / (FAST - SLOW), 0, 1)
        frequencies = frequencies * (kept + (1 - kept) / self.factor)
        return sinusoids(positions, self.head_size, frequencies)

    def turned(self, x, positions):
        half = self.head_size // 2
        angles = self.angles(positions)
        angles = ops.reshape(angles, (-1, half, 2))  # [T, K / 2, 2]
        sin, cos = (ops.cast(angles[..., n], x.dtype) for n in (0, 1))  # [T, K / 2]
        pairs = ops.reshape(x, (*ops.shape(x)[:-1], half, 2))  # [..., T, K / 2, 2]
        even, odd = pairs[..., 0], pairs[..., 1]
        turned = ops.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
        return ops.reshape(turned, ops.shape(x))  # [..., T, K]

    def get_config(self):
        names = ("head_size", "base", "factor", "length")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable("tfformer")
class Alibi(Places):
    """Adds -m |i - j| to the score of query i and key j, with m = 2^(-8 n / H) for head n of 1 to H
    (Press et al. 2022, "Train Short, Test Long"). No weights.

    The paper's ALiBi is causal, where j <= i. Here keys may also follow their query; those use the
    slopes in reverse order. With equal slopes on both sides, a text and its reverse would look
    alike.

    Args:
        num_heads: H.

    Raises:
        ValueError: `num_heads` is not an integer of at least 1.

    Example, of two heads:
        >>> bias = Alibi(num_heads=2).bias(np.arange(2), np.arange(2), causal=True)
        >>> np.array(bias)[:, 1].tolist()
        [[-0.0625, 0.0], [-0.00390625, 0.0]]
    """

    def __init__(self, num_heads, **kwargs):
        super().__init__(**kwargs)
        check_whole(num_heads=num_heads)
        self.num_heads = num_heads

    @property
    def slopes(self):
        """m of each head, float32 [H, 1, 1]."""
        heads = np.arange(1, self.num_heads + 1)
        return np.float32(2.0 ** (-8 * heads / self.num_heads))[:, None, None]

    def bias(self, queries, keys, causal):
        distances = ops.cast(between(queries, keys), "float32")[None]  # [1, T, S]
        # The PyTorch backend cannot multiply an array by a tensor.
        slopes = ops.convert_to_tensor(self.slopes)
        before = slopes * ops.minimum(distances, 0)
        if causal:
            return before
        return before - ops.flip(slopes, axis=0) * ops.maximum(distances, 0)  # [H, T, S]

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}


@keras.saving.register_keras_serializable("tfformer")
class RelativeBias(Places):
    """Adds b[bucket(j - i)] to the score of query i and key j; b is a learned number for each head
    and each bucket of distances (Raffel et al. 2020, section 2.1).

    The first half of the buckets hold one distance each. The others grow logarithmically up to
    `max_distance`, and the last one also holds all larger distances. Without causality each
    direction has half of the buckets. (In T5 the layers of a stack share one table; here each layer
    has its own.)

    Args:
        num_heads: H.
        num_buckets: the size of the table, a multiple of 4. Default 32, as in T5.
        max_distance: more than half of `num_buckets`. Default 128, as in T5.

    Raises:
        ValueError: a size is not an integer of at least 1, or breaks its rule.

    Example:
        >>> places = RelativeBias(num_heads=2, num_buckets=8, max_distance=20)
        >>> places.buckets(np.array([0, -1, -2, -3, -4, -9, -19, -99]), causal=True).tolist()
        [0, 1, 2, 3, 4, 6, 7, 7]
    """

    def __init__(self, num_heads, num_buckets=32, max_distance=128, **kwargs):
        super().__init__(**kwargs)
        check_whole(num_heads=num_heads, num_buckets=num_buckets, max_distance=max_distance)
        if num_buckets % 4:
            raise ValueError(f"num_buckets must be a multiple of 4, got {num_buckets}")
        if max_distance <= num_buckets // 2:
            raise ValueError(
                "max_distance must be more than half of num_buckets, got "
                f"max_distance={max_distance} and num_buckets={num_buckets}"
            )
        self.num_heads, self.num_buckets = num_heads, num_buckets
        self.max_distance = max_distance

    def build(self, x_shape=None):
        self.table = self.add_weight(
            name="table",
            shape=(self.num_buckets, self.num_heads),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,
        )

    def buckets(self, distances, causal):
        """The bucket of each distance j - i: NumPy integers of any shape."""
        distances, first, count = np.asarray(distances), 0, self.num_buckets
        if causal:
            distances = np.maximum(-distances, 0)
        else:
            count //= 2
            first, distances = np.where(distances > 0, count, 0), np.abs(distances)
        near = count // 2
        # In float32, as in T5: the rounding decides at the edges of the buckets.
        ratio = np.maximum(distances, 1).astype("float32") / np.float32(near)
        scale = np.float32((count - near) / math.log(self.max_distance / near))
        far = np.minimum(near + (np.log(ratio) * scale).astype("int32"), count - 1)
        return first + np.where(distances < near, distances, far)

    def bias(self, queries, keys, causal):
        # All larger distances share a bucket, so a table up to `max_distance` is enough.
        maximum = self.max_distance
        table = self.buckets(np.arange(-maximum, maximum + 1), causal).astype("int32")
        distances = ops.clip(between(queries, keys), -maximum, maximum) + maximum  # [T, S]
        buckets = ops.take(table, distances, axis=0)  # [T, S]
        found = ops.take(ops.cast(self.table, "float32"), buckets, axis=0)  # [T, S, H]
        return ops.transpose(found, (2, 0, 1))  # [H, T, S]

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
        }


def between(queries, keys):
    """j - i for each query position i, [T], and key position j, [S]: int32 [T, S]."""
    return ops.cast(keys, "int32")[None, :] - ops.cast(queries, "int32")[:, None]


def places_of(positions, num_heads, head_size, rotary, **common):
    """Make the positions of an attention from `StackOptions.attention_positions`; None for
    "none". `rotary` are arguments of `Rotary`, `common` those of every Keras layer.

    Raises:
        ValueError: `positions` is unknown, or `head_size` is odd for rotary positions.
    """
    if positions == "none":
        return None
    if positions == "rotary":
        return Rotary(head_size, **rotary, **common)
    if positions in ("alibi", "relative"):
        return {"alibi": Alibi, "relative": RelativeBias}[positions](num_heads, **common)
    raise ValueError(
        f"positions must be one of {', '.join(ATTENTION_POSITIONS)}, got {positions!r}"
    )
