"""The twin of LayerNorm."""

import tensorflow as tf

from tfformer.layers import norm


class LayerNorm:
    """LayerNorm, in float32."""

    def __init__(self, layer, name, fusing):
        self.name, self.epsilon, self.dtype = name, layer.epsilon, fusing.dtype
        fusing.weights[name] = {
            "gain": tf.cast(layer.gamma, tf.float32),
            "bias": tf.cast(layer.beta, tf.float32),
        }

    def __call__(self, weights, x):
        """Rows [R, D] -> [R, D]."""
        own, x = weights[self.name], tf.cast(x, tf.float32)
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        normed = centred * tf.math.rsqrt(variance + self.epsilon)
        return tf.cast(normed * own["gain"] + own["bias"], self.dtype)


TWINS = {norm.LayerNorm: LayerNorm}
