"""The inference layers of the output layers."""

import tensorflow as tf

from tfformer.inference import int8
from tfformer.inference.dense import Dense, columns, padded_columns
from tfformer.inference.feed_forward import ACTIVATIONS
from tfformer.inference.low_latency import multiplied
from tfformer.layers import output
from tfformer.layers.weight_matrices import float_matrix


class Output:
    """logits = x W + b in float32. W [D, V] is stored ready for the product, also if it is the
    transpose of an embedding.

    Args:
        layer, name, fusing: as for every inference layer.
        embedding: the embedding layer that shares its matrix. Default: none.
    """

    reads_source = output.Dense.reads_source

    def __init__(self, layer, name, fusing, embedding=None):
        self.name, self.size, self.has_bias = name, layer.vocabulary_size, layer.use_bias
        if layer.tied:
            kernel = tf.transpose(tf.cast(embedding.embeddings, fusing.dtype))  # [D, V]
        else:
            kernel = tf.cast(float_matrix(layer), fusing.dtype)
        fusing.weights[name] = {"kernel": padded_columns(kernel)}
        if layer.use_bias:
            fusing.weights[name]["bias"] = tf.cast(layer.bias, tf.float32)

    def __call__(self, weights, x):
        """Rows [R, D] -> float32 [R, V]."""
        own = weights[self.name]
        products = int8.product(x, own) if "int8" in own else tf.matmul(x, multiplied(own))
        if "zeros" in own:  # see `tfformer.inference.low_latency`
            products = tf.nn.bias_add(products, own["zeros"])
        logits = tf.cast(columns(products, self.size), tf.float32)
        return logits + own["bias"] if self.has_bias else logits

    def embedded(self, weights, ids):
        """The columns of ids [R] in the matrix: rows [R, D], for an embedding that shares it."""
        return tf.transpose(self._columns(weights, ids))

    def _columns(self, weights, ids):
        """The columns of ids [R] in the matrix: [D, R]."""
        own = weights[self.name]
        return int8.columns(own, ids) if "int8" in own else tf.gather(own["kernel"], ids, axis=1)

    def chosen(self, weights, ids):
        """A function of rows [R, D] -> float32 [R, C] that computes the columns of some ids."""
        kernel = self._columns(weights, ids)  # [D, C]
        bias = tf.gather(weights[self.name]["bias"], ids) if self.has_bias else None

        def logits(x):
            found = tf.cast(tf.matmul(x, kernel), tf.float32)
            return found if bias is None else found + bias

        return logits


class PointerGenerator(Output):
    """log P(w) of P(w) = g softmax(x W + b)_w + (1 - g) sum of the attention to w, in float32.

    Args:
        layer, name, fusing, embedding: see `Output`.
    """

    reads_source = output.PointerGenerator.reads_source

    def __init__(self, layer, name, fusing, embedding=None):
        super().__init__(layer, name, fusing, embedding)
        self.gate = Dense([layer.gate], f"{name}/gate", fusing)

    def __call__(self, weights, x, attention, source_ids):
        """Rows [R, D], the attention weights of each row, float32 [R, S], and the source ids,
        [R, S] -> float32 [R, V]."""
        generated = tf.nn.log_softmax(super().__call__(weights, x))
        copied = output.attention_to_ids(attention, source_ids, self.size)
        copied = tf.math.log(tf.maximum(copied, output.MINIMUM))
        gate = tf.cast(self.gate(weights, x), tf.float32)  # [R, 1]
        generated, copied = (
            generated + tf.math.log_sigmoid(gate),
            copied + tf.math.log_sigmoid(-gate),
        )
        # log(e^a + e^b), computed so that no exponential exceeds 1.
        maximum = tf.maximum(generated, copied)
        return maximum + tf.math.log1p(tf.exp(-tf.abs(generated - copied)))


class Transform:
    """LayerNorm(act(x W + b)): rows [R, D] -> [R, D]."""

    def __init__(self, layer, name, fusing):
        self.dense = Dense([layer.dense], f"{name}/dense", fusing)
        self.activation = ACTIVATIONS[layer.activation]
        self.layer_norm = fusing.inference_layer(layer.layer_norm, f"{name}/layer_norm")

    def __call__(self, weights, x):
        return self.layer_norm(weights, self.activation(self.dense(weights, x)))


INFERENCE_LAYERS = {
    output.Dense: Output,
    output.PointerGenerator: PointerGenerator,
    output.Transform: Transform,
}
