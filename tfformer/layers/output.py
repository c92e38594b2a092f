"""The output layers: from the decoder's states to the logits of the next token.

A model calls its output layer with all that the layer reads: the states; with `reads_source`, also
what each state attends to, and the ids that stand there. So a layer that copies words of the source
is an output layer like any other, in training, in search and in the exported graph.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from tfformer.layers.layer import Layer, check_whole

# What stands for a probability of 0 under a logarithm.
LEAST = 1e-30


# Keras names the weights in a `.keras` file by the classes of a model's layers, and the output
# layer of the files that people have is a Dense. So this one is called that.
@keras.saving.register_keras_serializable("tfformer")
class Dense(Layer):
    """logits = x W + b, with a matrix W [D, V] of its own or the transpose of an embedding
    (Press and Wolf 2017; Vaswani et al. 2017, section 3.4). The paper has no bias.

    Args:
        vocabulary_size: V.
        tied: whether W is the transpose of the embedding that it is called with. Default False.
        use_bias: whether there is a b. Default False.

    Call arguments:
        x: [..., D].
        embedding: the `TokenEmbedding` of a tied one.

    Returns:
        [..., V], in the compute dtype.
    """

    # Whether it is called with `attention` and `source_ids` too.
    reads_source = False

    def __init__(self, vocabulary_size, tied=False, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        check_whole(vocabulary_size=vocabulary_size)
        self.vocabulary_size, self.tied, self.use_bias = vocabulary_size, tied, use_bias
        self.initializer = None if tied else keras.initializers.GlorotUniform()
        self.bias = None
        self.supports_masking = True

    def build(self, x_shape):
        if not self.tied:
            shape = (x_shape[-1], self.vocabulary_size)
            self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.initializer)
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.vocabulary_size,), initializer="zeros"
            )

    def call(self, x, embedding=None):
        if self.tied and embedding is None:
            raise ValueError("embedding must be given to a tied output layer, got None")
        if self.tied:
            logits = embedding.project(x)
        else:
            logits = ops.matmul(x, ops.cast(self.kernel, x.dtype))
        return logits if self.bias is None else logits + ops.cast(self.bias, logits.dtype)

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.vocabulary_size)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "tied": self.tied,
            "use_bias": self.use_bias,
        }


class Mixture(NamedTuple):
    """What a `PointerGenerator` mixes: P(w) = g generated_w + (1 - g) copied_w.

    gate: float32 [...], g, the probability that a word is generated and not copied.
    attention: float32 [..., S], what it is copied by: the probability of each place.
    generated, copied: float32 [..., V], a distribution each.
    """

    gate: Any
    attention: Any
    generated: Any
    copied: Any

    @property
    def probabilities(self):
        """P, float32 [..., V]."""
        gate = self.gate[..., None]
        return gate * self.generated + (1 - gate) * self.copied


@keras.saving.register_keras_serializable("tfformer")
class PointerGenerator(Dense):
    """P(w) = g softmax(x W + b)_w + (1 - g) sum of a_s over the places s that hold w,
    g = sigmoid(x u + c)  (See et al. 2017, equations 8 and 9).

    A word is generated from the vocabulary with the probability g, and else copied: a is the
    attention to the source. Both sides have one vocabulary. (Their gate reads the attended source
    and the newest word beside the state; the state of a Transformer's decoder holds both.)

    Args:
        vocabulary_size, tied, use_bias: see `Dense`.

    Call arguments:
        x: [..., D].
        embedding: the `TokenEmbedding` of a tied one.
        attention: float32 [..., S], what each row of x attends to; it sums to 1.
        source_ids: integers [..., S], or what broadcasts to it: the ids that stand there.

    Returns:
        log P, float32 [..., V]: logits like others, whose softmax is P itself.
    """

    reads_source = True

    def __init__(self, vocabulary_size, tied=False, use_bias=False, **kwargs):
        # Keras would cast the attention to the compute dtype, in which it does not sum to 1.
        super().__init__(vocabulary_size, tied, use_bias, autocast=False, **kwargs)
        self.gate = keras.layers.Dense(1, name="gate", dtype=self.dtype_policy)

    def build(self, x_shape):
        super().build(x_shape)
        self.gate.build(x_shape)

    def call(self, x, embedding=None, attention=None, source_ids=None):
        gate, generated, copied = self._parts(x, embedding, attention, source_ids)
        copied = ops.log(ops.maximum(copied, LEAST))
        return ops.logaddexp(generated + ops.log_sigmoid(gate), copied + ops.log_sigmoid(-gate))

    def mixture(self, x, embedding=None, attention=None, source_ids=None):
        """The `Mixture` whose logarithm a call gives; for pictures. Takes what a call does."""
        gate, generated, copied = self._parts(x, embedding, attention, source_ids)
        return Mixture(ops.sigmoid(gate[..., 0]), attention, ops.exp(generated), copied)

    def _parts(self, x, embedding, attention, source_ids):
        """g before its sigmoid, [..., 1], log P of what is generated, P of what is copied."""
        if attention is None or source_ids is None:
            raise ValueError(
                "attention and source_ids must be given to an output layer that copies, got "
                f"{'no source_ids' if source_ids is None else 'no attention'}"
            )
        x = ops.cast(x, self.compute_dtype)
        generated = ops.log_softmax(ops.cast(super().call(x, embedding), "float32"))
        copied = attention_to_ids(attention, source_ids, self.vocabulary_size)
        return ops.cast(self.gate(x), "float32"), generated, copied


def attention_to_ids(attention, source_ids, vocabulary_size):
    """How much of the attention goes to each id: float32 [..., S] -> [..., V]."""
    shape = ops.shape(attention)
    rows = ops.reshape(attention, (-1, shape[-1]))  # [R, S]
    ids = ops.reshape(ops.broadcast_to(source_ids, shape), (-1, shape[-1]))  # [R, S]
    count = ops.shape(rows)[0]
    own = ops.broadcast_to(ops.arange(count, dtype=ids.dtype)[:, None], ops.shape(ids))  # [R, S]
    places = ops.reshape(ops.stack([own, ids], axis=-1), (-1, 2))  # [R * S, 2]
    found = ops.scatter(places, ops.reshape(rows, (-1,)), (count, vocabulary_size))  # [R, V]
    return ops.reshape(found, (*shape[:-1], vocabulary_size))  # [..., V]
