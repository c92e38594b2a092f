"""The decoder: N layers of causal self-attention, cross-attention and feed-forward.

Each layer runs in two ways, with equal results. A call computes a whole target at once, as in
training. `step` computes one position at a time, with a cache of the keys and values of earlier
positions; it serves your own decoding loop on TensorFlow or JAX. (No command uses `step`. Search
runs the same equations in fewer operations: `tfformer.inference.transformer`.)
"""

from collections.abc import Sequence

import keras
from keras import ops

from tfformer.annotations import Shape, Tensor
from tfformer.layers.masks import attention_mask
from tfformer.layers.packing import Padded, Rows, padded
from tfformer.layers.stack import (
    Block,
    Part,
    Stack,
    cross_attention,
    feed_forward,
    self_attention,
)


@keras.saving.register_keras_serializable("tfformer")
class DecoderLayer(Block):
    """x = Residual(x, causal SelfAttention); x = Residual(x, CrossAttention to the memory);
    x = Residual(x, FFN)  (Vaswani et al. 2017, section 3.1).

    Args:
        d_model, num_heads, d_ff and the others: see `tfformer.config.StackOptions`.

    Call arguments:
        x: [B, T, D].
        memory: [B, S, D], the encoder's output.
        x_mask: boolean [B, T], True = token.
        memory_mask: boolean [B, S], True = token. Keras's mask propagation fills in both masks.
        rows, memory_rows: the layouts of `x` and `memory`, `Padded` or `Packed`, which contain the
            masks. Default: both are padded.
        causal: position t attends only to positions up to t. Default True. False is for a decoder
            that writes all positions at once (Ghazvininejad et al. 2019).

    Returns:
        As `x`.

    Raises:
        ValueError: an option breaks its rule; or the width of `x` is not `d_model`.
        TypeError: d_model, num_heads or d_ff is missing, or an argument is unknown.

    Example:
        >>> layer = DecoderLayer(d_model=22, num_heads=2, d_ff=13)
        >>> x, memory = keras.ops.ones((3, 5, 22)), keras.ops.ones((3, 7, 22))
        >>> tuple(layer(x, memory).shape)
        (3, 5, 22)
    """

    PARTS = (
        Part("self_attention", "self_residual", self_attention),
        Part("cross_attention", "cross_residual", cross_attention, reads_memory=True),
        Part("feed_forward", "feed_forward_residual", feed_forward),
    )

    def build(self, x_shape: Shape, memory_shape: Shape | None = None) -> None:
        self._build(x_shape, memory_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        x_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        training: bool | None = None,
        rows: Rows | None = None,
        memory_rows: Rows | None = None,
        causal: bool = True,
    ) -> Tensor:
        rows = rows or padded("x_mask", x_mask, x)
        memory_rows = memory_rows or padded("memory_mask", memory_mask, memory)
        return self.with_attention(x, memory, training, rows, memory_rows, causal)[0]

    def with_attention(
        self,
        x: Tensor,
        memory: Tensor,
        training: bool | None = None,
        rows: Rows | None = None,
        memory_rows: Rows | None = None,
        causal: bool = True,
        below: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The output of a call, and the weights of the cross-attention. `below` are the weights of
        the layer below, which location-aware attention reads.

        Returns:
            The output, shaped as `x`, and the weights, float32 [B, H, T, S]. The weights are padded
            even if the rows are `Packed`.
        """
        rows, memory_rows = rows or Padded(), memory_rows or Padded()

        def attend_to_self(x):
            return self.self_attention(x, causal=causal, training=training, rows=rows)

        keys, values = self.cross_attention.keys_and_values(memory, memory_rows)
        mask = attention_mask(memory_rows.mask)
        return self._run(x, attend_to_self, (keys, values, mask), training, rows, below)

    def _run(self, x, attend_to_self, memory, training=None, rows=None, below=None):
        """Run the three parts; also return the weights of the second, cross-attention.

        Args:
            attend_to_self: a function of x.
            memory: the keys, values and mask of the memory.
            below: the weights of the layer below, or None.
        """
        weights = None

        def attend_to_memory(x):
            nonlocal weights
            known = *memory, training, rows
            x, weights = self.cross_attention.attend_with_weights(x, *known, below=below)
            return x

        lies = {"training": training, "rows": rows}
        x = self.self_residual(x, sublayer=attend_to_self, **lies)
        x = self.cross_residual(x, sublayer=attend_to_memory, **lies)
        return self.feed_forward_residual(x, sublayer=self.feed_forward, **lies), weights

    def cross_attention_weights(
        self,
        x: Tensor,
        memory: Tensor,
        x_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """The weights of the cross-attention in a call, float32 [B, H, T, S]."""
        rows, memory_rows = Padded(x_mask), Padded(memory_mask)
        return self.with_attention(x, memory, rows=rows, memory_rows=memory_rows)[1]

    def step(
        self,
        x: Tensor,
        memory_keys: Tensor,
        memory_values: Tensor,
        memory_mask: Tensor | None,
        cache: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Decode one position for W beams of each sentence.

        Cross-attention treats the beams as training treats positions: as queries to one memory. So
        the memory is never copied for them.

        Args:
            x: [B, W, D], the newest position.
            memory_keys, memory_values: [B, G, S, K], from `cross_attention.keys_and_values`; G is
                the number of key and value heads.
            memory_mask: boolean [B, S], True = token, or None.
            cache: keys and values [B, W, G, T, K] of the T earlier positions.

        Returns:
            [B, W, D], and the cache [B, W, G, T + 1, K].
        """
        known = memory_keys, memory_values, memory_mask, cache
        return self.step_with_attention(x, *known)[:2]

    def step_with_attention(
        self,
        x: Tensor,
        memory_keys: Tensor,
        memory_values: Tensor,
        memory_mask: Tensor | None,
        cache: tuple[Tensor, Tensor],
        below: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        """The results of `step`, and the weights of the cross-attention, float32 [B, H, W, S].
        `below` are the weights of the layer below."""
        cache_out: list[Tensor] = []

        def attend_to_self(x):
            # Each beam attends to its own past, so the axis of queries has length 1.
            x = ops.expand_dims(x, 2)  # [B, W, 1, D]
            start = ops.shape(cache[0])[-2]
            new = self.self_attention.keys_and_values(x, start=start)
            keys, values = (ops.concatenate(pair, axis=-2) for pair in zip(cache, new, strict=True))
            cache_out.extend((keys, values))
            x = self.self_attention.attend(x, keys, values, start=start)
            return ops.squeeze(x, 2)  # [B, W, D]

        memory = memory_keys, memory_values, attention_mask(memory_mask)
        x, weights = self._run(x, attend_to_self, memory, below=below)
        keys, values = cache_out
        return x, (keys, values), weights

    def compute_output_shape(self, x_shape: Shape, memory_shape: Shape | None = None) -> Shape:
        return x_shape


@keras.saving.register_keras_serializable("tfformer")
class Decoder(Stack):
    """A stack of `num_layers` decoder layers. With `norm="pre"` or `last_norm`, a final norm
    follows the last layer.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff and the others: see `tfformer.config.StackOptions`.

    Call arguments:
        x: [B, T, D], embeddings with positions.
        memory: [B, S, D], the encoder's output.
        x_mask: boolean [B, T], True = token.
        memory_mask: boolean [B, S], True = token. Keras's mask propagation fills in both masks.
        rows, memory_rows: the layouts of `x` and `memory`, `Padded` or `Packed`, which contain the
            masks. Default: both are padded.
        causal: position t attends only to positions up to t. Default True. False is for a decoder
            that writes all positions at once (Ghazvininejad et al. 2019).

    Returns:
        As `x`.

    Raises:
        ValueError: an option breaks its rule; or the width of `x` is not `d_model`.
        TypeError: d_model, num_heads or d_ff is missing, or an argument is unknown.

    Example, a cached step, whose output equals that of the whole target at this position:
        >>> decoder = Decoder(num_layers=2, d_model=22, num_heads=2, d_ff=13)
        >>> x, memory = (keras.random.normal((3, size, 22), seed=size) for size in (5, 7))
        >>> whole = decoder(x, memory)
        >>> projected, cache = decoder.project_memory(memory), decoder.empty_cache(3, 1)
        >>> first, cache = decoder.step(x[:, :1], projected, None, cache)
        >>> np.allclose(first, whole[:, :1], atol=1e-5)
        True
    """

    layer_class = DecoderLayer

    def build(self, x_shape: Shape, memory_shape: Shape | None = None) -> None:
        self._build(x_shape, memory_shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        x_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        training: bool | None = None,
        rows: Rows | None = None,
        memory_rows: Rows | None = None,
        causal: bool = True,
    ) -> Tensor:
        rows = rows or padded("x_mask", x_mask, x)
        memory_rows = memory_rows or padded("memory_mask", memory_mask, memory)
        lie = {"rows": rows, "memory_rows": memory_rows}
        if self.location_width:
            return self.with_attention(x, memory, training, **lie, causal=causal)[0]
        for layer in self.layers:
            x = layer(x, memory, training=training, **lie, causal=causal)
        return self.normed(x, rows, training)

    def with_attention(
        self,
        x: Tensor,
        memory: Tensor,
        training: bool | None = None,
        rows: Rows | None = None,
        memory_rows: Rows | None = None,
        causal: bool = True,
    ) -> tuple[Tensor, list[Tensor]]:
        """The output of a call, and the cross-attention weights of each position.

        Returns:
            The output, shaped as `x`, and for each layer the cross-attention weights, float32
            [B, H, T, S]. The weights are padded even if the rows are `Packed`.
        """
        rows, memory_rows = rows or Padded(), memory_rows or Padded()
        attention: list[Tensor] = []
        below = None
        for layer in self.layers:
            known = memory, training, rows, memory_rows, causal
            x, below = layer.with_attention(x, *known, below)
            attention.append(below)
        return self.normed(x, rows, training), attention

    def project_memory(self, memory: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The keys and values of the memory for each layer: N pairs of [B, G, S, K]."""
        return [layer.cross_attention.keys_and_values(memory) for layer in self.layers]

    def empty_cache(self, batch: int | Tensor, width: int | Tensor) -> list[tuple[Tensor, Tensor]]:
        """The cache before the first step: N pairs of [B, W, G, 0, K]. G is the number of key and
        value heads."""
        attention = self.layers[0].self_attention
        shape = (batch, width, attention.key_value_heads, 0, attention.head_size)
        return [(ops.zeros(shape, self.compute_dtype),) * 2 for _ in self.layers]

    def step(
        self,
        x: Tensor,
        projected_memory: Sequence[tuple[Tensor, Tensor]],
        memory_mask: Tensor | None,
        cache: Sequence[tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """`DecoderLayer.step` through all layers.

        Args:
            x: [B, W, D].
            projected_memory: from `project_memory`.
            memory_mask: boolean [B, S], True = token, or None.
            cache: N pairs of [B, W, G, T, K].

        Returns:
            [B, W, D], and the cache, N pairs of [B, W, G, T + 1, K].

        Raises:
            ValueError: the length of `projected_memory` or `cache` is not N.
        """
        return self.step_with_attention(x, projected_memory, memory_mask, cache)[:2]

    def step_with_attention(
        self,
        x: Tensor,
        projected_memory: Sequence[tuple[Tensor, Tensor]],
        memory_mask: Tensor | None,
        cache: Sequence[tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]], Tensor]:
        """The results of `step`, and the last layer's cross-attention weights, averaged over the
        heads, float32 [B, W, S]."""
        grown: list[tuple[Tensor, Tensor]] = []
        weights = None
        for layer, (keys, values), own in zip(self.layers, projected_memory, cache, strict=True):
            known = keys, values, memory_mask, own, weights
            x, own, weights = layer.step_with_attention(x, *known)
            grown.append(own)
        return self.normed(x), grown, ops.mean(weights, axis=1)

    def compute_output_shape(self, x_shape: Shape, memory_shape: Shape | None = None) -> Shape:
        return x_shape
