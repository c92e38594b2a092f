"""What makes the answer to one text come sooner: a graph of its own, for the few rows of its beams.

Measured with oneDNN, which TensorFlow asks on processors with AVX512_VNNI or AMX
(docs/measured/decoding.md):

- A product of a few rows costs what it costs to read its matrix. oneDNN wants that in an order of
  its own: of a variable, which may be another at the next request, it makes it anew for each
  product; of a constant in a product with a bias, it keeps it. What a loop is given from outside
  is a constant no more: it must stand in the loop. And there are two orders, for few rows and for 8
  or more: a matrix that is kept in the wrong one takes 2.5 to 4 times as long. (Of one row a
  product by a variable is the faster, so one beam gains nothing.)
- oneDNN shares the smallest operation between all threads that it may have, and waking one takes
  longer than the work: without flags of threads the products of heads, their softmax and their
  transposes took 46 ms of a sentence's 102, and with one thread 11. Eigen, whose kernels TensorFlow
  has for other types and other operations, shares what is worth sharing.
"""

import tensorflow as tf

# What a search multiplies by at each step, by the beginning of its name in the weights. (With
# `share_halves` these are the encoder's layers, of other numbers of rows: they stay variables.)
LAYERS, OUTPUT = "decoder/layer_", "output"
# Bytes of all constants of a graph at most: protobuf writes no 2 GiB, and the graph has more.
LARGEST = 1_900_000_000


class Constant:
    """A matrix that is a constant in each graph in which it is used, there once. Any operation
    takes it for a tensor.

    Args:
        value: a variable, or an eager tensor.
    """

    def __init__(self, value):
        self._value, self._tensors = value.numpy(), {}

    @property
    def size(self):
        """In bytes."""
        return self._value.nbytes

    def __tf_tensor__(self, dtype=None, name=None):
        graph = tf.compat.v1.get_default_graph()
        if graph not in self._tensors:
            self._tensors[graph] = tf.constant(self._value)
        return self._tensors[graph]


def with_constants(weights):
    """Weights with a constant beside each matrix that a search multiplies by at each step.

    `multiplied` takes it. The output layer's meets no bias, or one in another type; it gets one of
    zeros, a variable, for TensorFlow strikes out a sum with zeros that it knows.

    Args:
        weights: {name: {part: variable}}, as from `fuse`; or several such, a list or tuple.

    Raises:
        ValueError: the constants are more than `LARGEST`.
    """
    if not isinstance(weights, dict):
        found = [with_constants(each) for each in weights]
    else:
        found = {
            name: _with_constant(parts) if name.startswith((LAYERS, OUTPUT)) else parts
            for name, parts in weights.items()
        }
        kernel = found[OUTPUT]["kernel"]
        zeros = tf.zeros(kernel.shape[1:], kernel.dtype)
        found[OUTPUT]["zeros"] = tf.Variable(zeros, trainable=False)
    size = sum(one.size for one in tf.nest.flatten(found) if isinstance(one, Constant))
    if size > LARGEST:
        raise ValueError(
            f"low_latency must be False of matrices of more than {LARGEST:,} bytes, which no graph "
            f"can hold, got {size:,}"
        )
    return found


def _with_constant(parts):
    """The parts of a layer, and beside a matrix the constant; inside of them too."""
    made = {
        part: _with_constant(one) if isinstance(one, dict) else one for part, one in parts.items()
    }
    if "kernel" in parts and parts["kernel"].shape.rank == 2:
        made["constant"] = Constant(parts["kernel"])
    return made


def zeros_of(weights):
    """The variables that `with_constants` has made, to be kept with the others."""
    models = [weights] if isinstance(weights, dict) else weights
    return [model[OUTPUT]["zeros"] for model in models]


def multiplied(weights):
    """The matrix of some weights that rows are multiplied with: the constant, if there is one."""
    return weights.get("constant", weights["kernel"])


def as_tensors(weights):
    """Weights with the values of variables, read here once; constants stay what they are."""
    return tf.nest.map_structure(
        lambda one: one if isinstance(one, Constant) else tf.convert_to_tensor(one), weights
    )


# The operations of an attention with few rows, in float32, by kernels that are not oneDNN's.


def product(a, b, transpose_b=False):
    """a b, or a b^T, of [..., N, K] and [..., K, M]: oneDNN has no BatchMatMulV3."""
    return tf.raw_ops.BatchMatMulV3(x=a, y=b, Tout=a.dtype, adj_y=transpose_b)


def softmax(x):
    """The softmax of float32 [..., N]: oneDNN has no LogSoftmax."""
    return tf.exp(tf.nn.log_softmax(x))


def transposed(x, order):
    """x with its axes in another order: oneDNN transposes no integers."""
    integers = tf.bitcast(x, tf.int32)
    return tf.bitcast(tf.transpose(integers, order), x.dtype)  # [...], its axes as `order` says


def by_rows(single, several):
    """A function of texts, string [B], that asks `single` where B = 1, else `several`.

    Args:
        single, several: `tf.function`s of one signature, which give dicts of the same tensors.
    """

    @tf.function(input_signature=several.input_signature, autograph=False)
    def serving_default(text):
        text = tf.ensure_shape(text, [None])  # here: a branch would not name the input
        one = tf.equal(tf.size(text), 1)
        return tf.cond(one, lambda: single(text), lambda: several(text))

    return serving_default
