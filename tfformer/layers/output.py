"""The output layers: from the decoder's states to the logits of the next token.

A model calls its output layer with everything that the layer reads: the states and, with
`reads_source`, also the attention weights of each state and the source ids. So a layer that copies
source words works like any other output layer in training, in search and in the exported graph.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from tfformer.config import ACTIVATIONS
from tfformer.layers.feed_forward import GATED, gelu_tanh
from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.norm import norm_of

# The number used for a probability of 0 in a logarithm.
MINIMUM = 1e-30


# Keras names the weights in a `.keras` file by the classes of the layers. In existing files the
# output layer is a Dense, so this class keeps that name.
@keras.saving.register_keras_serializable("tfformer")
class Dense(Layer):
    """logits = x W + b. W [D, V] is the layer's own matrix, or the transpose of an embedding
    (Press and Wolf 2017; Vaswani et al. 2017, section 3.4). The paper has no bias.

    Args:
        vocabulary_size: V.
        tied: whether W is the transpose of the embedding given in the call. Default False.
        use_bias: whether to add b. Default False.

    Call arguments:
        x: [..., D].
        embedding: the `TokenEmbedding`, required if `tied`.

    Returns:
        [..., V], in the compute dtype.
    """

    # Whether a call also takes `attention` and `source_ids`.
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


@keras.saving.register_keras_serializable("tfformer")
class Transform(Layer):
    """LayerNorm(act(x W + b)), before the output layer of a masked language model (Devlin et al.
    2019).

    Args:
        d_model: D.
        activation: one of `FeedForward` that is not gated. Default `"gelu"`.
        epsilon, normalization: of the norm, see `StackOptions`.

    Call arguments:
        x: [..., D].

    Returns:
        [..., D].

    Raises:
        ValueError: `d_model` is not an integer of at least 1, or a name is unknown.
    """

    def __init__(self, d_model, activation="gelu", epsilon=1e-6, normalization="layer", **kwargs):
        super().__init__(**kwargs)
        check_whole(d_model=d_model)
        known = tuple(name for name in ACTIVATIONS if name not in GATED)
        if activation not in known:
            raise ValueError(f"activation must be one of {known}, got {activation!r}")
        self.d_model, self.activation = d_model, activation
        self.epsilon, self.normalization = epsilon, normalization
        act = gelu_tanh if activation == "gelu_tanh" else activation
        self.dense = keras.layers.Dense(d_model, act, name="dense", dtype=self.dtype_policy)
        common = {"name": "layer_norm", "dtype": self.dtype_policy}
        self.layer_norm = norm_of(normalization, epsilon, **common)
        self.supports_masking = True

    def build(self, x_shape):
        self.dense.build(x_shape)
        self.layer_norm.build(x_shape)

    def call(self, x, training=None):
        return self.layer_norm(self.dense(x), training=training)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "activation": self.activation,
            "epsilon": self.epsilon,
            "normalization": self.normalization,
        }


class Mixture(NamedTuple):
    """The parts that a `PointerGenerator` mixes: P(w) = g generated_w + (1 - g) copied_w.

    gate: float32 [...], g, the probability that the word is generated instead of copied.
    attention: float32 [..., S], the probability of copying from each source position.
    generated, copied: float32 [..., V], one distribution each.
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
    """P(w) = g softmax(x W + b)_w + (1 - g) sum of a_s over the positions s that hold w,
    g = sigmoid(x u + c)  (See et al. 2017, equations 8 and 9).

    With probability g a word is generated from the vocabulary, otherwise it is copied; a is the
    attention to the source. Source and target share one vocabulary. (The gate of See et al. also
    reads the attended source and the newest word; the state of a Transformer's decoder contains
    both.)

    Args:
        vocabulary_size, tied, use_bias: see `Dense`.

    Call arguments:
        x: [..., D].
        embedding: the `TokenEmbedding`, required if `tied`.
        attention: float32 [..., S], the attention weights of each row of x; they sum to 1.
        source_ids: integers that broadcast to [..., S]: the ids at the source positions.

    Returns:
        log P, float32 [..., V]. It serves as logits, whose softmax is P itself.
    """

    reads_source = True

    def __init__(self, vocabulary_size, tied=False, use_bias=False, **kwargs):
        # No autocast: in a smaller compute dtype the attention would not sum to 1.
        super().__init__(vocabulary_size, tied, use_bias, autocast=False, **kwargs)
        self.gate = keras.layers.Dense(1, name="gate", dtype=self.dtype_policy)

    def build(self, x_shape):
        super().build(x_shape)
        self.gate.build(x_shape)

    def call(self, x, embedding=None, attention=None, source_ids=None):
        gate, generated, copied = self._parts(x, embedding, attention, source_ids)
        copied = ops.log(ops.maximum(copied, MINIMUM))
        return ops.logaddexp(generated + ops.log_sigmoid(gate), copied + ops.log_sigmoid(-gate))

    def mixture(self, x, embedding=None, attention=None, source_ids=None):
        """The `Mixture` behind a call's output, for plots. Takes the arguments of a call."""
        gate, generated, copied = self._parts(x, embedding, attention, source_ids)
        return Mixture(ops.sigmoid(gate[..., 0]), attention, ops.exp(generated), copied)

    def _parts(self, x, embedding, attention, source_ids):
        """g before its sigmoid, [..., 1]; log P of the generated word; P of the copied word."""
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
    """The attention that each id receives: float32 [..., S] -> [..., V]."""
    shape = ops.shape(attention)
    rows = ops.reshape(attention, (-1, shape[-1]))  # [R, S]
    ids = ops.reshape(ops.broadcast_to(source_ids, shape), (-1, shape[-1]))  # [R, S]
    count = ops.shape(rows)[0]
    own = ops.broadcast_to(ops.arange(count, dtype=ids.dtype)[:, None], ops.shape(ids))  # [R, S]
    places = ops.reshape(ops.stack([own, ids], axis=-1), (-1, 2))  # [R * S, 2]
    found = ops.scatter(places, ops.reshape(rows, (-1,)), (count, vocabulary_size))  # [R, V]
    return ops.reshape(found, (*shape[:-1], vocabulary_size))  # [..., V]
