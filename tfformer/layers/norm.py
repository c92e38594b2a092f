"""LayerNorm, whose gradient is written out."""

import keras
from keras import ops

from tfformer.backend.gradients import upstream_gradient


@keras.saving.register_keras_serializable("tfformer")
class LayerNorm(keras.layers.LayerNormalization):
    """LayerNorm(x) = g * (x - mean) / sqrt(variance + 1e-6) + b  (Ba et al. 2016).

    Computed in float32 also where the compute dtype is less. In training the gradient is written
    out: with n = (x - mean) / sqrt(variance + 1e-6) and d = g * upstream, that of x is

        (d - mean(d) - n mean(n d)) / sqrt(variance + 1e-6).

    Differentiated term by term it takes half as long again.

    Args:
        epsilon: what is added to the variance. Default 1e-6.
        name, dtype, trainable: of every layer.

    Call arguments:
        x: [..., D].
        training: whether there will be a gradient. Default: what Keras knows.

    Returns:
        [..., D].
    """

    def __init__(self, epsilon=1e-6, *, name=None, dtype=None, trainable=True):
        super().__init__(epsilon=epsilon, name=name, dtype=dtype, trainable=trainable)

    def call(self, x, training=None):
        if not training:
            return super().call(x)
        dtype = keras.backend.result_type(x.dtype, "float32")

        @ops.custom_gradient
        def layer_norm(x, gain, bias):
            centred = ops.cast(x, dtype)
            centred = centred - ops.mean(centred, axis=-1, keepdims=True)
            variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
            scale = ops.rsqrt(variance + self.epsilon)
            normal = centred * scale

            def gradient(*args, upstream=None):
                upstream = ops.cast(upstream_gradient(args, upstream), dtype)
                product = upstream * normal
                over_rows = tuple(range(len(x.shape) - 1))
                d = upstream * gain
                d = d - ops.mean(d, axis=-1, keepdims=True)
                d = d - normal * ops.mean(product * gain, axis=-1, keepdims=True)
                return (
                    ops.cast(d * scale, x.dtype),
                    ops.sum(product, axis=over_rows),
                    ops.sum(upstream, axis=over_rows),
                )

            return ops.cast(normal * gain + bias, self.compute_dtype), gradient

        return layer_norm(x, ops.cast(self.gamma, dtype), ops.cast(self.beta, dtype))

    def get_config(self):
        config = super().get_config()
        return {name: config[name] for name in ("epsilon", "name", "dtype", "trainable")}
