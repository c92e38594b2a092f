"""What the layers and the stacks of encoder and decoder share: their sizes, and how they stack."""

import keras

from tfformer.layers.attention import MultiHeadAttention
from tfformer.layers.feed_forward import FeedForward
from tfformer.layers.norm import LayerNorm
from tfformer.layers.residual import Residual


class Block(keras.layers.Layer):
    """The sizes of a Transformer block, [B, T, D] -> [B, T, D].

    Args:
        d_model: D.
        num_heads: h.
        d_ff: the width of the feed-forward layer.
        dropout: P_drop, on each sub-layer's output. Default 0.1.
        activation: of the feed-forward layer. Default `"relu"`.
        norm: `"post"` (default) or `"pre"`.
    """

    def __init__(
        self, d_model, num_heads, d_ff, dropout=0.1, activation="relu", norm="post", **kwargs
    ):
        super().__init__(**kwargs)
        self.d_model, self.num_heads, self.d_ff = d_model, num_heads, d_ff
        self.dropout, self.activation, self.norm = dropout, activation, norm
        self.supports_masking = True

    def sizes(self):
        """The arguments of the constructor, by name."""
        names = ("d_model", "num_heads", "d_ff", "dropout", "activation", "norm")
        return {name: getattr(self, name) for name in names}

    def _attention(self, name):
        return MultiHeadAttention(self.d_model, self.num_heads, dtype=self.dtype_policy, name=name)

    def _feed_forward(self, name):
        sizes = (self.d_model, self.d_ff, self.activation)
        return FeedForward(*sizes, dtype=self.dtype_policy, name=name)

    def _residual(self, name):
        return Residual(self.dropout, self.norm, dtype=self.dtype_policy, name=name)

    def get_config(self):
        return {**super().get_config(), **self.sizes()}


class Stack(Block):
    """`num_layers` layers of one class; with `norm="pre"`, one LayerNorm behind the last.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff, dropout, activation, norm: of each layer, see `Block`.
    """

    layer_class = None

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        d_ff,
        dropout=0.1,
        activation="relu",
        norm="post",
        **kwargs,
    ):
        super().__init__(d_model, num_heads, d_ff, dropout, activation, norm, **kwargs)
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got num_layers={num_layers}")
        self.num_layers = num_layers
        self.layers = [
            self.layer_class(**self.sizes(), dtype=self.dtype_policy, name=f"layer_{n}")
            for n in range(num_layers)
        ]
        if norm == "pre":
            self.final_norm = LayerNorm(dtype=self.dtype_policy, name="final_norm")

    def _build(self, *shapes):
        for layer in self.layers:
            layer.build(*shapes)
        if self.norm == "pre":
            self.final_norm.build(shapes[0])

    def _normed(self, x):
        """The last LayerNorm of a pre-norm stack; a post-norm one has none."""
        return self.final_norm(x) if self.norm == "pre" else x

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}
