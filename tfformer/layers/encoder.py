"""The encoder: N layers of self-attention and feed-forward (section 3.1 of the paper)."""

import keras

from tfformer.layers.attention import MultiHeadAttention
from tfformer.layers.feed_forward import FeedForward
from tfformer.layers.sublayer import Residual, layer_norm


@keras.saving.register_keras_serializable("tfformer")
class EncoderLayer(keras.layers.Layer):
    """x = Residual(x, SelfAttention); x = Residual(x, FFN).

    Args:
        d_model: D.
        num_heads: h.
        d_ff: the width of the feed-forward layer.
        dropout: P_drop, on each sub-layer's output. Default 0.1.
        activation: of the feed-forward layer. Default `"relu"`.
        norm: `"post"` (default) or `"pre"`.

    Call arguments:
        x: [B, S, D].
        mask: boolean [B, S], True = token; filled in by Keras's mask propagation.
        causal: position s sees only the positions up to s, which makes this the layer of a
            decoder-only model. Default False.

    Returns:
        [B, S, D].
    """

    def __init__(
        self, d_model, num_heads, d_ff, dropout=0.1, activation="relu", norm="post", **kwargs
    ):
        super().__init__(**kwargs)
        self.d_model, self.num_heads, self.d_ff = d_model, num_heads, d_ff
        self.dropout, self.activation, self.norm = dropout, activation, norm
        self.supports_masking = True
        dtype = self.dtype_policy
        self.self_attention = MultiHeadAttention(
            d_model, num_heads, dtype=dtype, name="self_attention"
        )
        self.feed_forward = FeedForward(d_model, d_ff, activation, dtype=dtype, name="feed_forward")
        self.attention_residual = Residual(dropout, norm, dtype=dtype, name="attention_residual")
        self.feed_forward_residual = Residual(
            dropout, norm, dtype=dtype, name="feed_forward_residual"
        )

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.feed_forward.build(x_shape)
        self.attention_residual.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(self, x, mask=None, causal=False, training=None):
        x = self.attention_residual(
            x,
            sublayer=lambda x: self.self_attention(x, mask=mask, causal=causal, training=training),
            training=training,
        )
        return self.feed_forward_residual(x, sublayer=self.feed_forward, training=training)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "activation": self.activation,
            "norm": self.norm,
        }


@keras.saving.register_keras_serializable("tfformer")
class Encoder(keras.layers.Layer):
    """A stack of `num_layers` encoder layers; with `norm="pre"`, one LayerNorm behind the last.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff, dropout, activation, norm: of each `EncoderLayer`.

    Call arguments:
        x: [B, S, D], embedded and with positions.
        mask: boolean [B, S], True = token; filled in by Keras's mask propagation.
        causal: see `EncoderLayer`. Default False.

    Returns:
        [B, S, D].

    Example, a classifier of token sequences:
        >>> keras.Sequential([
        ...     TokenEmbedding(8000, 64), SinusoidalPositionalEncoding(64),
        ...     Encoder(num_layers=2, d_model=64, num_heads=4, d_ff=128),
        ...     keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2)])
    """

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
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got num_layers={num_layers}")
        self.num_layers, self.d_model, self.num_heads, self.d_ff = (
            num_layers,
            d_model,
            num_heads,
            d_ff,
        )
        self.dropout, self.activation, self.norm = dropout, activation, norm
        self.supports_masking = True
        dtype = self.dtype_policy
        self.layers = [
            EncoderLayer(
                d_model, num_heads, d_ff, dropout, activation, norm, dtype=dtype, name=f"layer_{n}"
            )
            for n in range(num_layers)
        ]
        if norm == "pre":
            self.final_norm = layer_norm(dtype, name="final_norm")

    def build(self, x_shape):
        for layer in self.layers:
            layer.build(x_shape)
        if self.norm == "pre":
            self.final_norm.build(x_shape)

    def call(self, x, mask=None, causal=False, training=None):
        for layer in self.layers:
            x = layer(x, mask=mask, causal=causal, training=training)
        return self.final_norm(x) if self.norm == "pre" else x

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "activation": self.activation,
            "norm": self.norm,
        }
