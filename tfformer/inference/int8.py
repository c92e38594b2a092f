"""Products with matrices in int8: a quarter of the bytes of float32 to read.

A step of a search multiplies a few rows by all matrices of the decoder, so its time is that of
reading them. x W is computed as X Q, times a scale for each row and one for each column. X are the
rows in int8. Each is divided by its own maximum, so a row does not depend on the others. Q is the
matrix in int8, divided column by column.

TensorFlow's `_QuantizedMatMul` multiplies them, by oneDNN. It is in TensorFlow from 2.17 on. With
`is_weight_const` it keeps the matrix in the order of the processor, also if it is a variable.

Q has values in [-63, 63], seven bits. Processors without VNNI add two products in 16 bits: 8-bit
values overflow there, and change the translations without an error. With seven bits, all
processors compute the same numbers. Without VNNI such products are slower than in float32.
"""

import tensorflow as tf

OPERATION = "_QuantizedMatMul"
# Smaller matrices stay float32: converting the rows would take longer than is gained.
MINIMUM_SIZE = 100_000
ROW, COLUMN = 127.0, 63.0  # the largest value of a row in int8; of a column of the matrix


def with_int8(weights):
    """Convert the large matrices of `fuse` to int8.

    Args:
        weights: {name: {part: tensor}}, from `fuse`; or a list or tuple of such dictionaries.

    Returns:
        The same structure. Each large "kernel" is replaced by "int8" [D, N] and "scale" [N].

    Raises:
        ValueError: no matrix is large enough.
    """
    found = _converted(weights)
    if not any(one.dtype == tf.int8 for one in tf.nest.flatten(found)):
        raise ValueError(
            f"dtype must not be 'int8' for a model without a matrix of {MINIMUM_SIZE:,} numbers, "
            "which would gain nothing"
        )
    return found


def _converted(weights):
    if not isinstance(weights, dict):
        return type(weights)(map(_converted, weights))
    found = {}
    for part, value in weights.items():
        if isinstance(value, dict):
            found[part] = _converted(value)
        elif (
            part == "kernel"
            and value.shape.rank == 2
            and value.shape.num_elements() >= MINIMUM_SIZE
        ):
            found |= quantized(value)
        else:
            found[part] = value
    return found


def quantized(kernel):
    """{"int8": int8 [D, N], "scale": float32 [N]} of a float32 matrix [D, N]."""
    largest = tf.reduce_max(tf.abs(kernel), axis=0)
    scale = tf.where(largest > 0, largest / COLUMN, 1.0)
    return {"int8": tf.cast(tf.round(kernel / scale), tf.int8), "scale": scale}


def product(x, parts):
    """x W of float32 rows [R, D] and a matrix of `quantized`: float32 [R, N]."""
    largest = tf.reduce_max(tf.abs(x), axis=-1, keepdims=True)  # [R, 1]
    rows = tf.round(x * tf.math.divide_no_nan(ROW, largest))
    rows = tf.bitcast(tf.cast(rows, tf.int8), tf.qint8)
    matrix = tf.bitcast(parts["int8"], tf.qint8)
    return _quantized_matmul(rows, matrix, parts["scale"]) * (largest / ROW)


def columns(parts, ids):
    """Columns of the matrix of `quantized`, float32 [D, ids]."""
    return tf.cast(tf.gather(parts["int8"], ids, axis=1), tf.float32) * tf.gather(
        parts["scale"], ids
    )


def _quantized_matmul(rows, matrix, scale):
    """(rows matrix) times the scale of each column: qint8 [R, D] and [D, N] -> float32 [R, N].

    TensorFlow has no Python function for this operation. In place of a scale it reads a range: the
    number that 127 stands for, and its negative. Its form that returns float32 adds a bias: zeros.
    """
    given = [rows, matrix, tf.zeros(matrix.shape[1:])]
    ranges = [tf.constant(-127.0), tf.constant(127.0), -127 * scale, 127 * scale]
    types = {
        "Tdevice_inputs": [tensor.dtype for tensor in given],
        "Thost_inputs": [tensor.dtype for tensor in ranges],
        "Tdevice_outputs": [tf.float32],
        "Thost_outputs": [],
    }
    attributes = {
        name: _attribute(type=[t.as_datatype_enum for t in of]) for name, of in types.items()
    }
    attributes |= {
        name: tf.compat.v1.AttrValue(type=tf.qint8.as_datatype_enum) for name in ("T1", "T2")
    }
    attributes["fused_ops"] = _attribute(s=[b"BiasAdd", b"Dequantize"])
    graph = tf.compat.v1.get_default_graph()
    operation = graph.create_op(
        OPERATION, given + ranges, [tf.float32], name="int8_product", attrs=attributes
    )
    [found] = operation.outputs
    found.set_shape([rows.shape[0], matrix.shape[1]])
    return found


def _attribute(**values):
    """A list as an attribute of an operation."""
    kind = tf.compat.v1.AttrValue
    return kind(list=kind.ListValue(**values))
