"""The inference layer of pooling."""

import tensorflow as tf

from tfformer.layers import pooling


class Pooling:
    """The mean over the tokens, or the state of the bos in front of them."""

    def __init__(self, layer, name, fusing):
        self.of_bos = layer.kind == "bos"

    def __call__(self, weights, x, mask):
        """Rows [B * S, D] and boolean [B, S], True = token -> [B, D]."""
        shape = tf.concat([tf.shape(mask), [x.shape[1]]], axis=0)
        x = tf.reshape(x, shape)  # [B, S, D]
        if self.of_bos:
            return x[:, 0]
        return pooling.mean_of_tokens(x, mask)


INFERENCE_LAYERS = {pooling.Pooling: Pooling}
