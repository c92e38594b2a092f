"""The inference layers of the decoder and of a decoder layer."""

import functools

import tensorflow as tf

from tfformer.inference.dense import Dense
from tfformer.inference.encoder import Block, Stack
from tfformer.layers import decoder


class DecoderLayer(Block):
    """x = Residual(x, causal SelfAttention); x = Residual(x, CrossAttention to the memory);
    x = Residual(x, FFN)."""

    def __call__(self, weights, x, batch, length, attend, memory):
        """Rows [B * T, D] -> rows, and the cross-attention weights, float32 [B, H, T, S].

        Args:
            attend: a function of queries, keys and values [B, H, T, K] that returns rows.
            memory: keys and values [B, G, S, K], the bias [B, 1, 1, S] that hides padding, and
                optionally the attention weights of the layer below.
        """
        attention = None

        def attend_to_self(x):
            return self.self_attention(weights, x, batch, length, attend)

        def attend_to_memory(x):
            nonlocal attention
            x, attention = self.cross_attention(weights, x, batch, length, *memory)
            return x

        x = self.self_residual(weights, x, attend_to_self)
        x = self.cross_residual(weights, x, attend_to_memory)
        feed_forward = functools.partial(self.feed_forward, weights)
        return self.feed_forward_residual(weights, x, feed_forward), attention


class Decoder(Stack):
    """The stack of decoder layers. One product, [D, 2 N D], computes the memory's keys and values
    for all layers."""

    def __init__(self, layer, name, fusing):
        super().__init__(layer, name, fusing)
        distinct = list({id(one): one for one in layer.layers}.values())
        # A layer that is used several times projects the memory once.
        self.projected = [distinct.index(one) for one in layer.layers]
        projections = []
        for one in distinct:
            cross = one.cross_attention
            projections += [cross.key_projection, cross.value_projection]
        self.memory = Dense(projections, f"{name}/memory", fusing)
        self.num_projections = len(projections)

    def project(self, weights, x, batch, length):
        """Rows [B * S, D] of the encoder -> N keys and N values, [B, G, S, K] each."""
        known = batch, length, self.num_projections, self.heads.key_value_heads
        parts = self.heads.split(self.memory(weights, x), *known)
        keys, values = parts[0::2], parts[1::2]
        return [keys[n] for n in self.projected], [values[n] for n in self.projected]

    def __call__(self, weights, x, batch, length, attend, memory):
        """Rows [B * T, D] -> rows, and the last layer's cross-attention weights, averaged over the
        heads, float32 [B, T, S].

        Args:
            attend: a function of queries, keys, values [B, H, T, K] and the layer's number.
            memory: {"keys", "values", "bias"}.
        """
        attention = None
        for n, layer in enumerate(self.layers):
            own = memory["keys"][n], memory["values"][n], memory["bias"], attention
            of_layer = functools.partial(attend, n=n)
            x, attention = layer(weights, x, batch, length, of_layer, own)
        return self.normed(weights, x), tf.reduce_mean(attention, axis=1)


INFERENCE_LAYERS = {decoder.DecoderLayer: DecoderLayer, decoder.Decoder: Decoder}
