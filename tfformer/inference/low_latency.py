"""What makes the answer to one text come sooner: a graph of its own, for the few rows of its beams.

Measured with oneDNN, which TensorFlow asks on processors with AVX512_VNNI or AMX
(docs/measured/decoding.md):

- A product of a few rows costs what it costs to read its matrix. oneDNN wants that in an order of
  its own: of a variable, which may be another at the next request, it makes it anew for each
  product; of a constant in a product with a bias, it keeps it. What a loop is given from outside
  is a constant no more: it must stand in the loop. And the order depends on the number of rows, up
  to 7 or more: a product of another number than the first one's takes three times as long.
- oneDNN shares the smallest operation between all threads that it may have, and waking one takes
  longer than the work: without flags of threads the products of heads, their softmax and their
  transposes took 46 ms of a sentence's 102, and with one thread 11. Eigen, whose kernels TensorFlow
  has for other types and other operations, shares what is worth sharing.
"""

import tensorflow as tf

# What a search multiplies by at each step, by the beginning of its name in the weights.
EACH_STEP = ("decoder/layer_", "output")


class Constant:
    """A matrix that is a constant in each graph in which it is used, there once. Any operation
    takes it for a tensor.

    Args:
        value: a variable, or an eager tensor.
    """

    def __init__(self, value):
        self._value, self._tensors = value.numpy(), {}

    def __tf_tensor__(self, dtype=None, name=None):
        graph = tf.compat.v1.get_default_graph()
        if graph not in self._tensors:
            self._tensors[graph] = tf.constant(self._value)
        return self._tensors[graph]


def with_constants(weights):
    """Weights whose matrices of each step are constants, and all else the variables that they are.

    A matrix that meets no bias gets one of zeros beside it, "zeros": a variable, for TensorFlow
    strikes out a sum with zeros that it knows.

    Args:
        weights: {name: {part: variable}}, as from `fuse`; or several such, a list or tuple.

    Returns:
        (weights, the zeros): the zeros are variables of their own, to be kept with the others.
    """
    zeros = []

    def constant(parts):
        made = {part: constant(p) if isinstance(p, dict) else p for part, p in parts.items()}
        kernel = parts.get("kernel")
        if kernel is not None and kernel.shape.rank == 2:
            made["kernel"], bias = Constant(kernel), parts.get("bias")
            if bias is None or bias.shape != kernel.shape[1:]:
                none = tf.zeros(kernel.shape[1:], kernel.dtype)
                made["zeros"] = tf.Variable(none, trainable=False)
                zeros.append(made["zeros"])
        return made

    def of_model(weights):
        found = dict(weights)
        return {n: constant(w) if n.startswith(EACH_STEP) else w for n, w in found.items()}

    if isinstance(weights, dict):
        return of_model(weights), zeros
    return [of_model(each) for each in weights], zeros


def as_tensors(weights):
    """Weights with the values of variables, read here once; constants stay what they are."""
    return tf.nest.map_structure(
        lambda one: one if isinstance(one, Constant) else tf.convert_to_tensor(one), weights
    )


# The operations of an attention with few rows. TensorFlow knows oneDNN's of the same types and
# names alone.


def product(a, b, transpose_b=False):
    """a b, or a b^T, of [..., N, K] and [..., K, M]: oneDNN has no BatchMatMulV3."""
    if a.dtype != tf.float32:
        return tf.matmul(a, b, transpose_b=transpose_b)
    return tf.raw_ops.BatchMatMulV3(x=a, y=b, Tout=a.dtype, adj_y=transpose_b)


def softmax(x):
    """The softmax of float32 [..., N]: oneDNN has no LogSoftmax."""
    return tf.exp(tf.nn.log_softmax(x))


def transposed(x, order):
    """x with its axes in another order: oneDNN transposes no integers."""
    integers = {2: tf.int16, 4: tf.int32}[x.dtype.size]
    return tf.bitcast(tf.transpose(tf.bitcast(x, integers), order), x.dtype)


def by_rows(single, several):
    """A function of texts, string [B], that asks `single` where B = 1, else `several`.

    Args:
        single, several: `tf.function`s of one signature, which give dicts of the same tensors.
    """

    @tf.function(input_signature=several.input_signature)
    def function(text):
        one = tf.equal(tf.size(text), 1)
        return tf.cond(one, lambda: single(text), lambda: several(text))

    return function
