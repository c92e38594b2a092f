"""The encoder: N layers of self-attention and feed-forward (section 3.1 of the paper)."""

import keras

from tfformer.annotations import Shape, Tensor
from tfformer.layers.packing import Rows, padded
from tfformer.layers.stack import Block, Part, Stack, feed_forward, self_attention


@keras.saving.register_keras_serializable("tfformer")
class EncoderLayer(Block):
    """x = Residual(x, SelfAttention); x = Residual(x, FFN).

    Args:
        d_model, num_heads, d_ff and the others: see `tfformer.config.StackOptions`.

    Call arguments:
        x: [B, S, D].
        mask: boolean [B, S], True = token; Keras's mask propagation fills it in.
        causal: position s attends only to positions up to s, as in a decoder-only model. Default
            False.
        rows: the layout of `x`, see `tfformer.layers.packing`, which contains the mask. Default:
            padded.

    Returns:
        As `x`.

    Raises:
        ValueError: an option breaks its rule; or the width of `x` is not `d_model`.
        TypeError: d_model, num_heads or d_ff is missing, or an argument is unknown.

    Example:
        >>> layer = EncoderLayer(d_model=22, num_heads=2, d_ff=13)
        >>> tuple(layer(keras.ops.ones((3, 5, 22)), causal=True).shape)
        (3, 5, 22)
    """

    PARTS = (
        Part("self_attention", "attention_residual", self_attention),
        Part("feed_forward", "feed_forward_residual", feed_forward),
    )

    def build(self, x_shape: Shape) -> None:
        self._build(x_shape)

    def call(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        training: bool | None = None,
        rows: Rows | None = None,
    ) -> Tensor:
        rows = rows or padded("mask", mask, x)

        def attend(x):
            return self.self_attention(x, causal=causal, training=training, rows=rows)

        lies = {"training": training, "rows": rows}
        x = self.attention_residual(x, sublayer=attend, **lies)
        return self.feed_forward_residual(x, sublayer=self.feed_forward, **lies)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape


@keras.saving.register_keras_serializable("tfformer")
class Encoder(Stack):
    """A stack of `num_layers` encoder layers. With `norm="pre"` or `last_norm`, a final norm
    follows the last layer.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff and the others: see `tfformer.config.StackOptions`.

    Call arguments:
        x: [B, S, D], embeddings with positions.
        mask: boolean [B, S], True = token; Keras's mask propagation fills it in.
        causal, rows: see `EncoderLayer`.

    Returns:
        As `x`.

    Raises:
        ValueError: an option breaks its rule; or the width of `x` is not `d_model`.
        TypeError: d_model, num_heads or d_ff is missing, or an argument is unknown.

    Example, a classifier of token sequences:
        >>> model = keras.Sequential([
        ...     keras.Input([None], dtype="int32"),
        ...     TokenEmbedding(17, 22), SinusoidalPositionalEncoding(22),
        ...     Encoder(num_layers=2, d_model=22, num_heads=2, d_ff=13),
        ...     keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)])
        >>> tuple(model(np.array([[5, 4, 0], [7, 9, 3]])).shape)
        (2, 3)
    """

    layer_class = EncoderLayer

    def build(self, x_shape: Shape) -> None:
        self._build(x_shape)

    def call(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        training: bool | None = None,
        rows: Rows | None = None,
    ) -> Tensor:
        rows = rows or padded("mask", mask, x)
        for layer in self.layers:
            x = layer(x, causal=causal, training=training, rows=rows)
        return self.normed(x, rows, training)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape
