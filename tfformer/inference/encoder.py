"""The inference layers of the encoder and of an encoder layer."""

import functools

from tfformer.layers import encoder


class Block:
    """Base class of encoder and decoder layers: an inference layer for each part of a layer."""

    def __init__(self, layer, name, fusing):
        for part, (sublayer, residual) in zip(layer.PARTS, layer.parts(), strict=True):
            # Keys and values of the memory are computed separately, before the first step.
            more = {"reads_memory": True} if part.reads_memory else {}
            setattr(
                self, part.name, fusing.inference_layer(sublayer, f"{name}/{part.name}", **more)
            )
            setattr(
                self, part.residual, fusing.inference_layer(residual, f"{name}/{part.residual}")
            )


class EncoderLayer(Block):
    """x = Residual(x, SelfAttention); x = Residual(x, FFN)."""

    def __call__(self, weights, x, batch, length, attend):
        """Rows [B * S, D] -> [B * S, D]; `attend` is a function of queries, keys and values
        [B, H, S, K] that returns rows."""

        def attend_to_self(x):
            return self.self_attention(weights, x, batch, length, attend)

        x = self.attention_residual(weights, x, attend_to_self)
        feed_forward = functools.partial(self.feed_forward, weights)
        return self.feed_forward_residual(weights, x, feed_forward)


class Stack:
    """The inference layers of a stack, and of its final norm if it has one."""

    def __init__(self, layer, name, fusing):
        self.layers = [
            fusing.inference_layer(one, f"{name}/layer_{n}") for n, one in enumerate(layer.layers)
        ]
        self.final_norm = None
        if layer.options.ends_with_norm:
            self.final_norm = fusing.inference_layer(layer.final_norm, f"{name}/final_norm")

    @property
    def heads(self):
        return self.layers[0].self_attention.heads

    def normed(self, weights, x):
        return x if self.final_norm is None else self.final_norm(weights, x)

    def sees(self, weights, bias):
        """The `attend` function for all positions at once; `bias` [B, 1, 1, S] hides padding."""

        def attend(queries, keys, values, n):
            return self.layers[n].self_attention.attend(weights, queries, keys, values, bias)

        return attend


class Encoder(Stack):
    """The stack of encoder layers. A language model makes it causal by its `attend`."""

    def __call__(self, weights, x, batch, length, attend):
        """Rows [B * S, D] -> [B * S, D]; `attend` is a function of queries, keys, values
        [B, H, S, K] and the layer's number that returns rows."""
        for n, layer in enumerate(self.layers):
            x = layer(weights, x, batch, length, functools.partial(attend, n=n))
        return self.normed(weights, x)


INFERENCE_LAYERS = {encoder.EncoderLayer: EncoderLayer, encoder.Encoder: Encoder}
