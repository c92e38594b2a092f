"""The encoder: N layers of self-attention and feed-forward (section 3.1 of the paper)."""

import keras

from tfformer.layers.stack import Block, Stack


@keras.saving.register_keras_serializable("tfformer")
class EncoderLayer(Block):
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
        packing: a `Packing` of `x`, which is then [N, D]. Default: `x` is padded.

    Returns:
        [B, S, D]; [N, D] if packed.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.self_attention = self._attention("self_attention")
        self.feed_forward = self._feed_forward("feed_forward")
        self.attention_residual = self._residual("attention_residual")
        self.feed_forward_residual = self._residual("feed_forward_residual")

    def build(self, x_shape):
        self.self_attention.build(x_shape)
        self.feed_forward.build(x_shape)
        self.attention_residual.build(x_shape)
        self.feed_forward_residual.build(x_shape)

    def call(self, x, mask=None, causal=False, training=None, packing=None):
        x = self.attention_residual(
            x,
            sublayer=lambda x: self.self_attention(
                x, mask=mask, causal=causal, training=training, packing=packing
            ),
            training=training,
        )
        return self.feed_forward_residual(x, sublayer=self.feed_forward, training=training)

    def compute_output_shape(self, x_shape):
        return x_shape


@keras.saving.register_keras_serializable("tfformer")
class Encoder(Stack):
    """A stack of `num_layers` encoder layers; with `norm="pre"`, one LayerNorm behind the last.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff, dropout, activation, norm: of each `EncoderLayer`.

    Call arguments:
        x: [B, S, D], embedded and with positions.
        mask: boolean [B, S], True = token; filled in by Keras's mask propagation.
        causal, packing: see `EncoderLayer`.

    Returns:
        [B, S, D]; [N, D] if packed.

    Example, a classifier of token sequences:
        >>> keras.Sequential([
        ...     keras.Input([None], dtype="int32"),
        ...     TokenEmbedding(8000, 64), SinusoidalPositionalEncoding(64),
        ...     Encoder(num_layers=2, d_model=64, num_heads=4, d_ff=128),
        ...     keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2)])
    """

    layer_class = EncoderLayer

    def build(self, x_shape):
        self._build(x_shape)

    def call(self, x, mask=None, causal=False, training=None, packing=None):
        for layer in self.layers:
            x = layer(x, mask=mask, causal=causal, training=training, packing=packing)
        return self._normed(x)

    def compute_output_shape(self, x_shape):
        return x_shape
