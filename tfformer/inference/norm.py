"""The inference layers of the norms in `tfformer.layers.norm`."""

import tensorflow as tf

from tfformer.layers import norm


class Norm:
    """Base class: computes in float32. A subclass defines the computation and the weights."""

    def __init__(self, layer, name, fusing):
        self.name, self.epsilon, self.dtype = name, layer.epsilon, fusing.dtype
        if own := self.weights_of(layer):
            fusing.weights[name] = own

    def weights_of(self, layer):
        return {}

    def __call__(self, weights, x):
        """Rows [R, D] -> [R, D]."""
        return tf.cast(self.normed(weights, tf.cast(x, tf.float32)), self.dtype)

    def standardised(self, x):
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + self.epsilon)


class LayerNorm(Norm):
    """g (x - mean) / sqrt(variance + epsilon) + b."""

    def weights_of(self, layer):
        gain, bias = tf.cast(layer.gamma, tf.float32), tf.cast(layer.beta, tf.float32)
        return {"gain": gain, "bias": bias}

    def normed(self, weights, x):
        own = weights[self.name]
        return self.standardised(x) * own["gain"] + own["bias"]


class SimpleNorm(Norm):
    """(x - mean) / sqrt(variance + epsilon)."""

    def normed(self, weights, x):
        return self.standardised(x)


class AdaNorm(Norm):
    """(1 - k y) y with y = (x - mean) / sqrt(variance + epsilon)."""

    def normed(self, weights, x):
        y = self.standardised(x)
        return (1 - norm.AdaNorm.K * y) * y


class RMSNorm(Norm):
    """g x / sqrt(mean(x^2) + epsilon)."""

    def weights_of(self, layer):
        return {"gain": tf.cast(layer.gamma, tf.float32)}

    def normed(self, weights, x):
        mean = tf.reduce_mean(x * x, axis=-1, keepdims=True)
        return x * tf.math.rsqrt(mean + self.epsilon) * weights[self.name]["gain"]


class BatchNorm(Norm):
    """x s + t: the moving averages, the gain and the bias become one gain and one bias."""

    def weights_of(self, layer):
        known = layer.gamma, layer.beta, layer.moving_mean, layer.moving_variance
        gain, bias, mean, variance = (tf.cast(one, tf.float32) for one in known)
        scale = gain * tf.math.rsqrt(variance + layer.epsilon)
        return {"gain": scale, "bias": bias - mean * scale}

    def normed(self, weights, x):
        own = weights[self.name]
        return x * own["gain"] + own["bias"]


INFERENCE_LAYERS = {
    norm.LayerNorm: LayerNorm,
    norm.SimpleNorm: SimpleNorm,
    norm.AdaNorm: AdaNorm,
    norm.RMSNorm: RMSNorm,
    norm.BatchNorm: BatchNorm,
}
