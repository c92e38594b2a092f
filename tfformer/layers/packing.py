"""Rows: the layout of the tokens of a batch. Three layouts: padded [B, T, D], packed end to end
[N, D], or several texts joined into full rows [B * T, D].

Apart from attention, a Transformer treats each position by itself: projections, feed-forward
layers, LayerNorm, dropout, the output projection, the loss. Their results at padding are thrown
away. So the tokens of a padded batch [B, T, D] may stand end to end, [N, D], without padding. Only
attention needs rows. It splits and merges heads anyway, and that same copy also inserts or removes
the padding.
"""

from typing import TypeAlias

from keras import ops

from tfformer.annotations import Tensor
from tfformer.backend.gradients import upstream_gradient
from tfformer.config import whole
from tfformer.layers.masks import causal_mask, check_mask, padding_mask

# oneDNN compiles a program for each new shape, and batches have any number of tokens. With this
# rounding there are a sixteenth as many shapes, for 8 extra tokens on average, of about 1,000.
MULTIPLE = 16


def without_padding(
    inputs: dict[str, Tensor], labels: Tensor, passes: int = 1
) -> tuple[dict[str, Tensor], Tensor]:
    """Add the positions of the tokens to a padded training element, and keep only their labels.

    For `dataset.map`, on the TensorFlow backend and without XLA, because the number of tokens
    differs between batches:

        model.fit(dataset.map(without_padding))

    gives the same losses and gradients as `model.fit(dataset)`, in less time.

    Args:
        inputs: {"source_ids": [B, S], "target_ids": [B, T]}.
        labels: [B, T], the token after each target id; padding where the target ids are padding.
        passes: how many copies of its rows the batch holds, one after the other (R-Drop). Default
            1.

    Returns:
        The inputs with "source_places" [N] and "target_places" [M], and the labels [M]. In a single
        pass, positions of padding are added, if there are any, up to the next multiple of 16.

    Raises:
        ValueError: other inputs are given, or `passes` is not an integer of at least 1.

    Example, in which 3 of 6 target positions are tokens:
        >>> inputs = {"source_ids": np.array([[7, 3, 0], [5, 4, 3]]),
        ...           "target_ids": np.array([[2, 9, 0], [2, 0, 0]])}
        >>> inputs, labels = without_padding(inputs, labels=np.array([[9, 3, 0], [3, 0, 0]]))
        >>> np.array(inputs["target_places"]).tolist()
        [0, 1, 3, 2, 4, 5]
        >>> np.array(labels).tolist()
        [9, 3, 3, 0, 0, 0]
    """

    whole("passes", passes)
    if not isinstance(inputs, dict) or not {"source_ids", "target_ids"} <= set(inputs):
        names = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
        raise ValueError(
            f'inputs must be {{"source_ids": [B, S], "target_ids": [B, T]}}, got {names}'
        )

    places = {
        f"{side}_places": token_places(inputs[f"{side}_ids"], passes)
        for side in ("source", "target")
    }
    labels = ops.reshape(labels, (-1,))  # [B * T]
    labels = ops.take(labels, places["target_places"], axis=0)
    return {**inputs, **places}, labels


def token_places(ids, passes=1):
    """The positions of all tokens of ids [B, T], in ascending order. The ids hold `passes` copies
    of the rows. In a single pass, positions of padding fill up to the next multiple of 16."""
    tokens = ops.reshape(padding_mask(ids), (passes, -1))  # [passes, B * T]
    # If all ids are padding, keep the first position: a gather needs at least one.
    first = ops.arange(ops.shape(tokens)[1]) == 0
    tokens = tokens | (first & ~ops.any(tokens, axis=1, keepdims=True))
    tokens = ops.reshape(tokens, (-1,))  # [passes * B * T]
    places = ops.nonzero(tokens)[0]
    if passes > 1:
        return places
    padding = ops.nonzero(~tokens)[0]
    return ops.concatenate([places, padding[: -ops.size(places) % MULTIPLE]])


class Padded:
    """The usual layout of a batch: [B, T, D], with padding at the end of each row. More axes before
    T are allowed.

    Args:
        mask: boolean [B, T], True = token. Default: all are tokens.
    """

    # `positions`: the position of each row of x, [N]; None: x is [B, T, D] and counts from 0.
    # `pairs`: which token may attend to which, boolean [B, T, T]; None: all to all.
    positions = pairs = None

    def __init__(self, mask=None):
        self.mask = mask

    def pack(self, ids):
        """[B, T] -> [B, T]."""
        return ids

    def of_sentences(self, x):
        """One row for each sentence, [B, S], ready to broadcast to its tokens: [B, 1, S]."""
        return ops.expand_dims(x, 1)  # [B, 1, S]

    def tokens(self):
        """Which rows are tokens, boolean [B, T]; None: all are."""
        return self.mask

    def length(self, x):
        """T of x [..., T, D]."""
        return ops.shape(x)[-2]

    def split_heads(self, x, num_heads):
        """[..., T, D] -> [..., H, T, K], D = H K."""
        heads = (num_heads, x.shape[-1] // num_heads)
        x = ops.reshape(x, (*ops.shape(x)[:-1], *heads))  # [..., T, H, K]
        return ops.swapaxes(x, -3, -2)  # [..., H, T, K]

    def merge_heads(self, x):
        """[..., H, T, K] -> [..., T, D], D = H K; the inverse of `split_heads`."""
        width = x.shape[-3] * ops.shape(x)[-1]
        x = ops.swapaxes(x, -3, -2)  # [..., T, H, K]
        return ops.reshape(x, (*ops.shape(x)[:-2], width))  # [..., T, D]


def padded(name, mask, x):
    """The `Padded` rows of x. Raises a ValueError with this `name` if the mask is not [B, T]."""
    return Padded(check_mask(name, mask, x))


class Packed:
    """The N tokens of a padded batch [B, T], end to end: [N, D]. (Each sentence still attends only
    to itself. This is not the packing of several texts into one row.)

    Args:
        places: integers [N], b * T + t of each token, in ascending order, N at least 1. Positions
            of padding may follow, so that batches share one N or a few values of N.
        mask: boolean [B, T], True = token.
    """

    pairs = None

    def __init__(self, places, mask):
        self.places, self.mask = ops.cast(places, "int32"), mask
        self.padded_length = ops.shape(mask)[1]
        self.positions = self.places % self.padded_length
        count = ops.cumsum(ops.cast(ops.reshape(mask, (-1,)), "int32"))  # [B * T]
        # The values at padding are never used, but a gather needs a valid index.
        self.ranks = ops.reshape(ops.maximum(count - 1, 0), ops.shape(mask))  # [B, T]

    def pack(self, ids):
        """[B, T] -> [N]."""
        return ops.take(ops.reshape(ids, (-1,)), self.places, axis=0)  # [N]

    def of_sentences(self, x):
        """One row for each sentence, [B, S], repeated for each of its tokens: [N, S]."""
        return ops.take(x, self.places // self.padded_length, axis=0)  # [N, S]

    def tokens(self):
        """Which rows are tokens, boolean [N]."""
        return ops.take(ops.reshape(self.mask, (-1,)), self.places, axis=0)  # [N]

    def length(self, x):
        """T of the padded batch that x [N, D] was."""
        return self.padded_length

    def split_heads(self, x, num_heads):
        """[N, D] -> [B, H, T, K], D = H K."""
        return self._split(num_heads)(x)

    def merge_heads(self, x):
        """[B, H, T, K] -> [N, D], D = H K; the inverse of `split_heads`."""
        return self._merge(x.shape[1])(x)

    # `_split` and `_merge` are each other's gradient. A key that is padding gets no gradient, and a
    # query that is padding sends none. Both are gathers, also backwards. The gradient that a
    # framework defines for a gather is a sum over segments, which takes many times as long.

    def _split(self, num_heads, zero_padding=False):
        @ops.custom_gradient
        def split(x):
            rows = ops.reshape(x, (-1, ops.shape(x)[-1] // num_heads))  # [N * H, K]
            heads = ops.arange(num_heads, dtype="int32")
            chosen = self.ranks[:, None, :] * num_heads + heads[None, :, None]  # [B, H, T]
            split = ops.take(rows, chosen, axis=0)  # [B, H, T, K]
            if zero_padding:
                split = ops.where(self.mask[:, None, :, None], split, ops.zeros((), split.dtype))
            return split, lambda *args, upstream=None: self._merge(num_heads)(
                upstream_gradient(args, upstream)
            )

        return split

    def _merge(self, num_heads):
        @ops.custom_gradient
        def merge(x):
            size = ops.shape(x)[-1]
            rows = ops.reshape(x, (-1, size))  # [B * H * T, K]
            row, column = self.places // self.padded_length, self.positions
            heads = ops.arange(num_heads, dtype="int32")
            chosen = (row[:, None] * num_heads + heads) * self.padded_length + column[:, None]
            merged = ops.take(rows, chosen, axis=0)  # [N, H, K]
            merged = ops.reshape(merged, (-1, num_heads * size))  # [N, D]

            def gradient(*args, upstream=None):
                return self._split(num_heads, zero_padding=True)(upstream_gradient(args, upstream))

            return merged, gradient

        return merge


class Joined:
    """Rows that hold several texts, one after the other: [B * T, D]. A text attends only to itself,
    and its positions count from 0, as in a row of its own. Padding is allowed at the end only.

    Args:
        texts: integers [B, T], the number of each token's text; 0 is padding. All tokens of a text
            have its number, and no other text in the row has it.
    """

    def __init__(self, texts):
        texts = ops.convert_to_tensor(texts)
        self.mask = padding_mask(texts)
        self.pairs = ops.equal(texts[:, :, None], texts[:, None])  # [B, T, T]
        before = ops.cast(self.pairs & causal_mask(ops.shape(texts)[1]), "int32")
        self.positions = ops.reshape(ops.sum(before, axis=-1) - 1, (-1,))  # [B * T]

    def pack(self, ids):
        """[B, T] -> [B * T]."""
        return ops.reshape(ids, (-1,))  # [B * T]

    def tokens(self):
        """Which rows are tokens, boolean [B * T]."""
        return ops.reshape(self.mask, (-1,))  # [B * T]

    def length(self, x):
        """T of the rows that x [B * T, D] was."""
        return ops.shape(self.mask)[1]

    def split_heads(self, x, num_heads):
        """[B * T, D] -> [B, H, T, K], D = H K."""
        shape = (*ops.shape(self.mask), num_heads, x.shape[-1] // num_heads)
        return ops.swapaxes(ops.reshape(x, shape), 1, 2)  # [B, H, T, K]

    def merge_heads(self, x):
        """[B, H, T, K] -> [B * T, D], D = H K; the inverse of `split_heads`."""
        width = x.shape[1] * ops.shape(x)[-1]
        return ops.reshape(ops.swapaxes(x, 1, 2), (-1, width))  # [B * T, D]


# The layout of the rows of a layer's input.
Rows: TypeAlias = Padded | Packed | Joined
