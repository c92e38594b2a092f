"""The inference layer of upsampling."""

import tensorflow as tf

from tfformer.inference.dense import Dense
from tfformer.layers import upsampling


class Upsampling:
    """Rows [B * S, D] -> [B * k S, D]."""

    def __init__(self, layer, name, fusing):
        self.factor, self.d_model = layer.factor, layer.d_model
        self.projection = Dense([layer.projection], f"{name}/projection", fusing)

    def __call__(self, weights, x):
        return tf.reshape(self.projection(weights, x), [-1, self.d_model])  # [B * k S, D]


INFERENCE_LAYERS = {upsampling.Upsampling: Upsampling}
