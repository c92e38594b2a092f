"""Rows: how the tokens of a batch lie, padded [B, T, D], packed end to end [N, D], or texts joined
to full rows [B * T, D].

All of a Transformer but attention treats each position by itself: projections, feed-forward
layers, LayerNorm, dropout, the output projection, the loss. What these compute at padding is
thrown away. So the tokens of a padded batch [B, T, D] may as well stand end to end, [N, D], without
the padding between them. Attention alone needs rows, and takes its heads apart and puts them
together again anyway: the same copy leaves the padding out or puts it in.
"""

from keras import ops

from tfformer.backend.gradients import upstream_gradient
from tfformer.config import whole
from tfformer.layers.masks import causal_mask, check_mask, padding_mask

# Batches have any number of tokens, and oneDNN makes a program for each shape that it meets. Of
# these there are a sixteenth so, for 8 more tokens on average of about 1,000.
MULTIPLE = 16


def without_padding(inputs, labels, passes=1):
    """A training element of padded ids with the places of its tokens, and the labels of these.

    For `dataset.map`, on the TensorFlow backend and without XLA, for the number of tokens differs
    from batch to batch:

        model.fit(dataset.map(without_padding))

    gives the same losses and gradients as `model.fit(dataset)`, sooner.

    Args:
        inputs: {"source_ids": [B, S], "target_ids": [B, T]}.
        labels: [B, T], the tokens after the target ids, and padding where these are.
        passes: how often the batch holds its rows, one copy after the other (R-Drop). Default 1.

    Returns:
        The inputs with "source_places" [N] and "target_places" [M], and the labels [M]. In a single
        pass, places of padding follow, as far as there are any, up to the next multiple of 16.

    Raises:
        ValueError: other inputs are given, or `passes` is no integer of at least 1.

    Example, in which 3 of 6 places of the target are tokens:
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
    """The places of all tokens of ids [B, T], ascending, of each of so many copies of the rows. In
    a single pass, places of padding follow up to the next multiple of 16."""
    tokens = ops.reshape(padding_mask(ids), (passes, -1))  # [passes, B * T]
    # Of padding alone the first place is kept: there must be something to gather from.
    first = ops.arange(ops.shape(tokens)[1]) == 0
    tokens = tokens | (first & ~ops.any(tokens, axis=1, keepdims=True))
    tokens = ops.reshape(tokens, (-1,))  # [passes * B * T]
    places = ops.nonzero(tokens)[0]
    if passes > 1:
        return places
    padding = ops.nonzero(~tokens)[0]
    return ops.concatenate([places, padding[: -ops.size(places) % MULTIPLE]])


class Padded:
    """A batch as it usually lies: [B, T, D], padding at the end of each row. There may be more axes
    before T.

    Args:
        mask: boolean [B, T], True = token. Default: all are tokens.
    """

    # Where each row of x stands, [N]; None: x is [B, T, D], and they stand from 0 on. And who may
    # attend to whom, boolean [B, T, T]; None: all to all.
    positions = pairs = None

    def __init__(self, mask=None):
        self.mask = mask

    def pack(self, ids):
        """[B, T] -> [B, T]."""
        return ids

    def of_sentences(self, x):
        """What each sentence has once, [B, S], for each of its rows: [B, 1, S]."""
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
    """The `Padded` rows of x; a ValueError that names the argument if the mask is not [B, T]."""
    return Padded(check_mask(name, mask, x))


class Packed:
    """The N tokens of a padded batch [B, T], end to end: [N, D]. (Each sentence still attends to
    itself alone: this is not the packing of several texts into one row.)

    Args:
        places: integers [N], b * T + t of each token, ascending, N at least 1. Places of padding
            may follow them, so that batches have the same N, or one of few.
        mask: boolean [B, T], True = token.
    """

    pairs = None

    def __init__(self, places, mask):
        self.places, self.mask = ops.cast(places, "int32"), mask
        self.padded_length = ops.shape(mask)[1]
        self.positions = self.places % self.padded_length
        count = ops.cumsum(ops.cast(ops.reshape(mask, (-1,)), "int32"))  # [B * T]
        # What stands at padding is never looked at, but it must be a number.
        self.ranks = ops.reshape(ops.maximum(count - 1, 0), ops.shape(mask))  # [B, T]

    def pack(self, ids):
        """[B, T] -> [N]."""
        return ops.take(ops.reshape(ids, (-1,)), self.places, axis=0)  # [N]

    def of_sentences(self, x):
        """What each sentence has once, [B, S], for each of its rows: [N, S]."""
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

    # Each of the two is the other's gradient: attention gives no gradient to a key that is padding,
    # and takes none from a query that is. Both are gathers; the gradient that a framework knows
    # for a gather, a sum over segments, takes many times as long.

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
    """Rows of several texts, one behind the other: [B * T, D]. A text sees itself alone, and its
    places are numbered from 0 on, as if it had a row of its own; padding is at most at the end.

    Args:
        texts: integers [B, T]: the number of the text that a token is of, the same for all of its
            tokens and for those of no other in the row; 0 is padding.
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
