"""Attention: the function of equation 1, and the layer of section 3.2.2 that uses it."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from tfformer.annotations import Shape, Tensor
from tfformer.config import number
from tfformer.layers.dropout import Dropout
from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.location import Location, even
from tfformer.layers.masks import attention_mask, check_mask, fits, may_be
from tfformer.layers.norm import RMSNorm, normed
from tfformer.layers.packing import Padded, Rows
from tfformer.layers.relative_positions import places_of
from tfformer.layers.weight_matrices import Matrix


def attention_weights(query, key, mask=None):
    """softmax(Q K^T / sqrt(d_k)). The softmax is float32 whatever the compute dtype.

    Args:
        query: [..., T, K].
        key: [..., S, K].
        mask: boolean that broadcasts to [..., T, S], True = may be attended to.

    Returns:
        float32 [..., T, S]. A row sums to 1. A fully masked row returns zeros, so it is not NaN and
        does not depend on the amount of padding.
    """
    return weights_of(scaled_scores(query, key), mask)


def scaled_scores(query, key):
    """Q K^T / sqrt(d_k): [..., T, K] and [..., S, K] -> float32 [..., T, S]."""
    # (q / sqrt(d_k)) k^T: the same product, but the smallest tensor is scaled.
    scale = query.shape[-1] ** -0.5
    key = ops.swapaxes(key, -1, -2)  # [..., K, S]
    return ops.cast(ops.matmul(query * ops.cast(scale, query.dtype), key), "float32")


def weights_of(scores, mask=None):
    """The softmax of scores, float32 [..., T, S], over the keys that the mask allows."""
    if mask is not None:
        scores = ops.where(mask, scores, -1e9)
    # A single key gets weight 1. (Keras warns of a softmax over one number.)
    weights = ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)
    return weights if mask is None else ops.where(mask, weights, 0.0)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V  (Vaswani et al. 2017, equation 1).

    Args:
        query: [..., T, K].
        key: [..., S, K].
        value: [..., S, M].
        mask: boolean that broadcasts to [..., T, S], True = may be attended to. Default: all.

    Returns:
        [..., T, M] in the dtype of `value`. A fully masked query returns zeros.

    Raises:
        ValueError: the shapes do not fit together, or the dtype of `query` is not floating.

    Example, a query that attends equally to three keys:
        >>> query, key = np.ones((1, 5)), np.ones((3, 5))
        >>> value = np.array([[2.0], [4.0], [9.0]])
        >>> round(float(scaled_dot_product_attention(query, key, value)[0, 0]), 4)
        5.0
        >>> mask = np.array([True, True, False])
        >>> round(float(scaled_dot_product_attention(query, key, value, mask)[0, 0]), 4)
        3.0
    """
    query, key, value = (ops.convert_to_tensor(x) for x in (query, key, value))
    shapes = query.shape, key.shape, value.shape
    fit = len(query.shape) > 0 and len(key.shape) > 1 and len(value.shape) > 1
    if not fit or not may_be((query.shape[-1], key.shape[-2]), (key.shape[-1], value.shape[-2])):
        raise ValueError(
            "query, key and value must be [..., T, K], [..., S, K] and [..., S, M], got shapes "
            f"{', '.join(str(tuple(shape)) for shape in shapes)}"
        )
    if not keras.backend.is_float_dtype(query.dtype):
        raise ValueError(f"query must be of a floating dtype, got {query.dtype}")
    return ops.matmul(ops.cast(attention_weights(query, key, mask), value.dtype), value)


@keras.saving.register_keras_serializable("tfformer")
class MultiHeadAttention(Layer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O,
    head_i = Attention(Q W_Q_i, K W_K_i, V W_V_i)  (Vaswani et al. 2017, section 3.2.2).

    One matrix [D, h K] of each kind holds the h matrices side by side, so one product computes all
    heads; W_O is [h K, D]. Keys and values come from the same sequence: the query's own in
    self-attention, the encoder's output in cross-attention.

    With `num_key_value_heads` g, W_K and W_V have g heads, [D, g K], and each serves h / g query
    heads (Ainslie et al. 2023, "GQA"; g = 1 is multi-query attention, Shazeer 2019).

    Args:
        d_model: D, the width of input and output.
        num_heads: h; D is a multiple of it, unless `head_size` is given.
        dropout: on the attention weights, in training. Default 0.
        num_key_value_heads: g; h is a multiple of it. Default None: h.
        positions: the relative positions of self-attention: `"none"` (default), `"rotary"`,
            `"alibi"` or `"relative"`, see `tfformer.layers.relative_positions`.
        location_width: for cross-attention, the width of the convolution over the attention weights
            of the layer below, see `tfformer.layers.location`. Default 0: none.
        head_size: K, the width of a head. Default None: D / h.
        rotary: with rotary positions, {name: value} of other arguments of
            `tfformer.layers.relative_positions.Rotary`. Default: the paper's.
        query_key_norm: whether an RMSNorm over the K features of a head, with one gain for all
            heads, normalises queries and keys before rotary positions and scores, as in Qwen3
            (after Henry et al. 2020). Default False.
        epsilon: the number that this norm adds to the mean square. Default 1e-6.
        use_bias: whether the four projections have biases. Default True.

    Call arguments:
        query: [B, T, D]. It may have more axes before T, as pieces of texts have, [B, P, T, D];
            then the other arguments have them too.
        value: [B, S, D], the sequence to attend to. Default: `query` itself (self-attention).
        mask: boolean [B, T], True = token: the padding of `query`, which Keras passes by itself.
            Self-attention hides these keys; attention to another sequence ignores this mask.
            Or boolean [B, T, S], True = may be attended to, as the `attention_mask` of
            `keras.layers.MultiHeadAttention`. It hides keys in addition to `value_mask` and
            `causal`. (Self-attention accepts a `value_mask` too.)
        value_mask: boolean [B, S], True = token: the padding of `value`.
        causal: position t attends only to positions up to t; S = T. Default False.
        rows, value_rows: the layouts of `query` and `value`, see `tfformer.layers.packing`, which
            contain the masks. Default: padded, with the masks above.

    If the inputs carry Keras masks, mask propagation fills in both masks.

    Attributes:
        watcher: a function that receives the attention weights, float32 [B, H, T, S], in each eager
            call; in a compiled call only during tracing. Default None.

    Returns:
        As `query`.

    Raises:
        ValueError: a size or `dropout` is out of range, `d_model` is not a multiple of `num_heads`,
            `num_heads` is not a multiple of `num_key_value_heads`, or `positions` is unknown. In a
            call: the width of `query` is not `d_model`; a mask fits neither its input nor the
            pairs of both inputs; `causal` is set but `value` and `query` differ in length; or
            `positions` is set but `value` is not `query`.
        TypeError: the layer or a call gets an unknown argument.

    Example, in which the second of five equal tokens attends to the first and to itself:
        >>> attention = MultiHeadAttention(d_model=22, num_heads=2)
        >>> x = keras.ops.ones((3, 5, 22))
        >>> tuple(attention(x, causal=True).shape)
        (3, 5, 22)
        >>> print(np.round(attention.attention_weights(x, causal=True)[0, 0, 1], 2))
        [0.5 0.5 0. 0. 0. ]
    """

    MEANT = {
        "key_dim": "give d_model, the width of all heads together",
        "value_dim": "give d_model, the width of all heads together",
        "output_shape": "the output is as wide as d_model",
    }
    MEANT_IN_CALL = {
        "key": "keys and values are both made of value",
        "attention_mask": "give it as mask, [B, T, S]",
        "query_mask": "give it as mask, [B, T]",
        "key_mask": "give it as value_mask, [B, S]",
        "use_causal_mask": "give causal=True",
        "return_attention_scores": "attention_weights(query, value, ...) gives them",
    }

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        num_key_value_heads: int | None = None,
        positions: str = "none",
        location_width: int = 0,
        head_size: int | None = None,
        rotary: Mapping[str, float] | None = None,
        query_key_norm: bool = False,
        epsilon: float = 1e-6,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_whole(d_model=d_model, num_heads=num_heads)
        number("dropout", dropout, 0, 1)
        if head_size is not None:
            check_whole(head_size=head_size)
        elif d_model % num_heads:
            raise ValueError(
                "d_model must be a positive multiple of num_heads, got "
                f"d_model={d_model} and num_heads={num_heads}"
            )
        if num_key_value_heads is not None:
            check_whole(num_key_value_heads=num_key_value_heads)
            if num_heads % num_key_value_heads:
                raise ValueError(
                    "num_heads must be a multiple of num_key_value_heads, got "
                    f"num_heads={num_heads} and num_key_value_heads={num_key_value_heads}"
                )
        self.d_model, self.num_heads, self.dropout = d_model, num_heads, dropout
        self.num_key_value_heads, self.positions = num_key_value_heads, positions
        self.key_value_heads = num_key_value_heads or num_heads
        self.head_size = head_size or d_model // num_heads
        self.use_bias = use_bias
        self.supports_masking = True
        width = self.key_value_heads * self.head_size
        self.query_projection = self._projection("query", num_heads * self.head_size)
        self.key_projection = self._projection("key", width)
        self.value_projection = self._projection("value", width)
        self.output_projection = self._projection("output", d_model)
        self.weights_dropout = Dropout(dropout, dtype=self.dtype_policy)
        self.rotary = dict(rotary or {})
        known = positions, num_heads, self.head_size, self.rotary
        self.places = places_of(*known, dtype=self.dtype_policy, name="places")
        self.query_key_norm, self.epsilon = query_key_norm, epsilon
        self.query_norm = self.key_norm = None
        if query_key_norm:
            self.query_norm, self.key_norm = (
                RMSNorm(epsilon, dtype=self.dtype_policy, name=f"{name}_norm")
                for name in ("query", "key")
            )
        self.location_width, self.location = location_width, None
        if location_width:
            self.location = Location(num_heads, location_width, name="location")
        self.watcher: Callable[[Tensor], object] | None = None

    def _projection(self, name, width):
        return keras.layers.Dense(width, use_bias=self.use_bias, dtype=self.dtype_policy, name=name)

    def build(self, query_shape: Shape, value_shape: Shape | None = None) -> None:
        if query_shape[-1] != self.d_model:
            raise ValueError(
                f"query must be [B, T, D] with D = d_model = {self.d_model}, got {query_shape}"
            )
        self.query_projection.build(query_shape)
        self.key_projection.build(value_shape or query_shape)
        self.value_projection.build(value_shape or query_shape)
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.head_size))
        for layer in (self.places, self.location):
            if layer is not None:
                layer.build(query_shape)
        for norm in (self.query_norm, self.key_norm):
            if norm is not None:
                norm.build((*query_shape[:-1], self.head_size))

    def call(
        self,
        query: Tensor,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        causal: bool = False,
        training: bool | None = None,
        rows: Rows | None = None,
        value_rows: Rows | None = None,
    ) -> Tensor:
        known = query, value, mask, value_mask, causal, training, rows, value_rows
        return self._attend(*known)[0]

    def attention_weights(
        self,
        query: Tensor,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """The attention weights, float32 [B, H, T, S], for the arguments of a call.

        Raises:
            ValueError: as a call.
        """
        return self._attend(query, value, mask, value_mask, causal)[1]

    def _attend(
        self, query, value, mask, value_mask, causal, training=None, rows=None, value_rows=None
    ):
        """The output of a call, and the attention weights, float32 [B, H, T, S]."""
        keys_of = query if value is None else value
        if self.places is not None and value is not None:
            raise ValueError(f"value must be query itself with positions={self.positions!r}")
        padding, pairs = (None, None) if rows else _padding_or_pairs(mask, query, keys_of)
        value_mask = check_mask("value_mask", value_mask, keys_of)
        rows = rows or Padded(padding)
        pairs = rows.pairs if pairs is None else pairs
        if value is None and value_rows is None:
            value_rows = rows if value_mask is None else Padded(_both(rows.mask, value_mask))
        value, value_rows = keys_of, value_rows or Padded(value_mask)
        if causal and not may_be(query.shape[1:-1], value.shape[1:-1]):
            raise ValueError(
                "value must be as long as query with causal=True, got shapes "
                f"{tuple(value.shape)} and {tuple(query.shape)}"
            )
        keys, values = self.keys_and_values(value, value_rows)
        mask = attention_mask(value_rows.mask, rows.length(query) if causal else None, pairs)
        known = query, keys, values, mask, training, rows
        return self.attend_with_weights(*known, causal=causal)

    def matrices(self) -> list[Matrix]:
        """W_Q, W_K, W_V and W_O, as `Matrix`. W_K and W_V multiply the memory, if there is one."""
        return [
            Matrix.of(self.query_projection, heads=self.num_heads),
            Matrix.of(self.key_projection, heads=self.key_value_heads, of_memory=True),
            Matrix.of(self.value_projection, heads=self.key_value_heads, of_memory=True),
            Matrix.of(self.output_projection, heads=self.num_heads, axis=0),
        ]

    def keys_and_values(
        self, value: Tensor, rows: Rows | None = None, start: int | Tensor = 0
    ) -> tuple[Tensor, Tensor]:
        """K W_K and V W_V of [B, S, D], split into heads: two tensors [B, G, S, K]. G is the number
        of key and value heads. The first row is at the position `start`."""
        rows = rows or Padded()
        value = ops.convert_to_tensor(value, dtype=self.compute_dtype)
        projections = (self.key_projection, self.value_projection)
        keys, values = (rows.split_heads(make(value), self.key_value_heads) for make in projections)
        return self._turned(normed(self.key_norm, keys), start), values

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        training: bool | None = None,
        rows: Rows | None = None,
        start: int | Tensor = 0,
    ) -> Tensor:
        """The attention of `query` [B, T, D] to projected keys and values [B, G, S, K].

        Returns [B, T, D]. The keys may have more axes between B and G, as in a cache of beams; then
        `query` has them too: [B, W, T, D] to [B, W, G, S, K]. The first query is at the position
        `start`. With `positions`, `mask` must hide the keys after a query's own position.
        """
        known = query, keys, values, mask, training, rows, start
        return self.attend_with_weights(*known)[0]

    def attend_with_weights(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        training: bool | None = None,
        rows: Rows | None = None,
        start: int | Tensor = 0,
        causal: bool = True,
        below: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The output of `attend`, and the weights before dropout, float32 [B, H, T, S].

        `causal` says whether the mask hides keys after a query's own position. `below`, float32
        [B, H, T, S], are the weights of the layer below, for location-aware attention. Default:
        uniform weights.
        """
        rows = rows or Padded()
        queries = rows.split_heads(self.query_projection(query), self.num_heads)
        queries = self._turned(normed(self.query_norm, queries), start)
        queries = self._grouped(queries)  # [B, G, H / G * T, K]
        scores = self._ungrouped(scaled_scores(queries, keys))  # [B, H, T, S]
        if self.places is not None:
            of_queries, of_keys = (ops.arange(ops.shape(scores)[axis]) for axis in (-2, -1))
            # No `:=` here: AutoGraph warns about it.
            bias = self.places.bias(start + of_queries, of_keys, causal)
            if bias is not None:
                scores = scores + bias
        if self.location is not None:
            if below is None:
                below = even(True if mask is None else mask, scores)
            scores = scores + self.location(below)
        weights = weights_of(scores, mask)
        if self.watcher is not None:
            self.watcher(weights)
        kept = ops.cast(weights, values.dtype)
        if training and self.dropout:
            kept = self.weights_dropout(kept, training=training)
        found = ops.matmul(self._grouped(kept), values)  # [B, G, H / G * T, K]
        return self.output_projection(rows.merge_heads(self._ungrouped(found))), weights

    def _turned(self, heads, start):
        """Queries or keys [..., T, K] with rotary positions, if used; the first is at `start`."""
        if self.places is None:
            return heads
        return self.places.turned(heads, start + ops.arange(ops.shape(heads)[-2]))

    def _grouped(self, x):
        """[..., H, T, N] -> [..., G, H / G * T, N]: puts queries that share keys side by side."""
        shared = self.num_heads // self.key_value_heads
        if shared == 1:
            return x
        *first, rows, size = ops.shape(x)
        shape = (*first[:-1], self.key_value_heads, shared * rows, size)
        return ops.reshape(x, shape)  # [..., G, H / G * T, N]

    def _ungrouped(self, x):
        """[..., G, H / G * T, N] -> [..., H, T, N]; the inverse of `_grouped`."""
        shared = self.num_heads // self.key_value_heads
        if shared == 1:
            return x
        *first, rows, size = ops.shape(x)
        shape = (*first[:-1], self.num_heads, rows // shared, size)
        return ops.reshape(x, shape)  # [..., H, T, N]

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape | None = None
    ) -> tuple[int | None, ...]:
        return (*query_shape[:-1], self.d_model)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "num_key_value_heads": self.num_key_value_heads,
            "positions": self.positions,
            "location_width": self.location_width,
            "head_size": self.head_size,
            "rotary": self.rotary,
            "query_key_norm": self.query_key_norm,
            "epsilon": self.epsilon,
            "use_bias": self.use_bias,
        }


def _padding_or_pairs(mask, query, value):
    """Tell the two kinds of masks apart: (padding, None) or (None, pairs). A padding mask has the
    query's axes without the last; a mask of pairs has an axis for the keys too."""
    if mask is None:
        return None, None
    mask = ops.convert_to_tensor(mask)
    *first, length, _ = query.shape
    if fits(mask.shape, (*first, length)):
        return mask, None
    if fits(mask.shape, (*first, length, value.shape[-2])):
        return None, mask
    axes = "B, T" if len(first) < 2 else "..., T"
    raise ValueError(
        f"mask must be [{axes}] or [{axes}, S] with T = {length} and S = {value.shape[-2]}, got "
        f"{tuple(mask.shape)} for a query of {tuple(query.shape)}"
    )


def _both(mask, other):
    """True where both masks are True; None hides nothing."""
    other = ops.cast(other, "bool")
    return other if mask is None else ops.cast(mask, "bool") & other
