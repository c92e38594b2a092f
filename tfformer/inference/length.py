"""The inference layer of the length predictor."""

import tensorflow as tf

from tfformer.inference.dense import Dense
from tfformer.layers import length
from tfformer.layers.pooling import mean_of_tokens


class LengthPredictor:
    """Rows [B * S, D] and a mask [B, S] -> logits float32 [B, 2 n + 1]."""

    def __init__(self, layer, name, fusing):
        self.projection = Dense([layer.projection], f"{name}/projection", fusing)

    def __call__(self, weights, x, mask):
        shape = tf.concat([tf.shape(mask), [x.shape[1]]], axis=0)
        mean = mean_of_tokens(tf.reshape(x, shape), mask)  # [B, S, D] -> [B, D]
        return tf.cast(self.projection(weights, mean), tf.float32)


INFERENCE_LAYERS = {length.LengthPredictor: LengthPredictor}
