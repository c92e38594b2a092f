"""A faster graph for one text, with the few rows of its beams.

Measured with oneDNN, which TensorFlow uses on processors with AVX512_VNNI or AMX
(docs/measured/decoding.md):

- A product of a few rows costs as much as reading its matrix. oneDNN needs the matrix in its own
  order. For a variable, which may change between requests, it reorders the matrix for each product.
  For a constant in a product with a bias, it keeps the reordered matrix. A value passed into a loop
  is no longer a constant, so the constant must be created inside the loop. There are two orders,
  for few rows and for 8 or more. A matrix kept in the wrong one takes 2.5 to 4 times as long. (For
  one row a product with a variable is faster, so one beam gains nothing.)
- oneDNN splits even the smallest operation among all its threads, and waking a thread takes longer
  than the work. Without thread flags the products of heads, their softmax and their transposes
  took 46 ms of a sentence's 102; with one thread, 11 ms. TensorFlow has Eigen kernels for other
  types and operations, and Eigen splits only work that is large enough.
"""

import tensorflow as tf

# The matrices of each search step, by the beginning of their names in the weights. (With
# `share_halves` these are the encoder's layers, with other numbers of rows: they stay variables.)
LAYERS, OUTPUT = "decoder/layer_", "output"
# The maximum size of all constants of a graph in bytes. Protobuf cannot write 2 GiB, and a graph
# contains more than its constants.
LARGEST = 1_900_000_000
# Exports have this graph by default up to this size. Constants need ten times their size in memory:
# 206 MiB for 20 MB.
SMALL = 32 * 2**20


class Constant:
    """A matrix that becomes one constant in each graph that uses it. Operations accept it as a
    tensor.

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


def with_constants(weights, has_shortlist=False):
    """Add a constant to each matrix that a search multiplies by at each step.

    `multiplied` returns the constant. The output layer has no bias, or a bias of another type. So
    it gets a bias of zeros. This is a variable, because TensorFlow removes a sum with constant
    zeros.

    Args:
        weights: {name: {part: variable}}, from `fuse`; or a list or tuple of such dictionaries.
        has_shortlist: whether the output layer computes the columns that a request chooses, which
            are no constants. Default False.

    Raises:
        ValueError: the constants exceed `LARGEST`.
    """
    if (size := constant_bytes(weights, has_shortlist)) > LARGEST:
        raise ValueError(
            f"low_latency must be False of matrices of more than {LARGEST:,} bytes, which no graph "
            f"can hold, got {size:,}"
        )
    if not isinstance(weights, dict):
        return [with_constants(each, has_shortlist) for each in weights]
    names = _of_each_step(has_shortlist)
    found = {
        name: _with_constant(parts) if name.startswith(names) else parts
        for name, parts in weights.items()
    }
    kernel = found[OUTPUT].get("kernel")
    if kernel is not None and not has_shortlist:  # in int8 there is none
        zeros = tf.zeros(kernel.shape[1:], kernel.dtype)
        found[OUTPUT]["zeros"] = tf.Variable(zeros, trainable=False)
    return found


def constant_bytes(weights, has_shortlist=False):
    """The size of all matrices that `with_constants` makes constants."""
    if not isinstance(weights, dict):
        return sum(constant_bytes(each, has_shortlist) for each in weights)
    return sum(
        matrix.shape.num_elements() * matrix.dtype.size
        for name, parts in weights.items()
        if name.startswith(_of_each_step(has_shortlist))
        for matrix in _matrices(parts)
    )


def _of_each_step(has_shortlist):
    """The beginnings of the names of layers whose whole matrices are multiplied at each step."""
    return (LAYERS,) if has_shortlist else (LAYERS, OUTPUT)


def _matrices(parts):
    """Yields the matrices of a layer, also of nested parts."""
    for part, value in parts.items():
        if isinstance(value, dict):
            yield from _matrices(value)
        elif part == "kernel" and value.shape.rank == 2:
            yield value


def _with_constant(parts):
    """The parts of a layer, with a constant beside each matrix, also in nested parts."""
    made = {
        part: _with_constant(one) if isinstance(one, dict) else one for part, one in parts.items()
    }
    if "kernel" in parts and parts["kernel"].shape.rank == 2:
        made["constant"] = Constant(parts["kernel"])
    return made


def zeros_of(weights):
    """The variables made by `with_constants`, to store with the others."""
    models = [weights] if isinstance(weights, dict) else weights
    return [model[OUTPUT]["zeros"] for model in models if "zeros" in model[OUTPUT]]


def multiplied(weights):
    """The matrix for a product with rows: the constant, if there is one."""
    return weights.get("constant", weights["kernel"])


def as_tensors(weights):
    """Weights with the current values of variables, read once here; constants stay constants."""
    return tf.nest.map_structure(
        lambda one: one if isinstance(one, Constant) else tf.convert_to_tensor(one), weights
    )


# The operations of an attention with few rows, in float32, by kernels outside oneDNN.


def product(a, b, transpose_b=False):
    """a b, or a b^T, of [..., N, K] and [..., K, M]: oneDNN has no BatchMatMulV3."""
    return tf.raw_ops.BatchMatMulV3(x=a, y=b, Tout=a.dtype, adj_y=transpose_b)


def softmax(x):
    """The softmax of float32 [..., N]: oneDNN has no LogSoftmax."""
    return tf.exp(tf.nn.log_softmax(x))


def transposed(x, order):
    """x with its axes in another order: oneDNN does not transpose integers."""
    integers = tf.bitcast(x, tf.int32)
    return tf.bitcast(tf.transpose(integers, order), x.dtype)  # [...], its axes as `order` says


def by_rows(single, several):
    """A function of texts, string [B], that calls `single` if B = 1, else `several`.

    Args:
        single, several: `tf.function`s of one signature, which return dicts of the same tensors.
    """

    @tf.function(input_signature=several.input_signature, autograph=False)
    def serving_default(text):
        text = tf.ensure_shape(text, [None])  # here: a branch would not name the input
        one = tf.equal(tf.size(text), 1)
        return tf.cond(one, lambda: single(text), lambda: several(text))

    return serving_default
