"""What a request may be: checks in the graph, which are INVALID_ARGUMENT on a server."""

import tensorflow as tf


def require_in(name, value, least, most):
    """`value`; INVALID_ARGUMENT on the server unless every number of it is in [least, most]."""
    inside = tf.reduce_all((value >= least) & (value <= most))
    return after(inside, [f"{name} must be in [{least}, {most}], got", value], value)


def counted(values, *counts):
    """A tensor; INVALID_ARGUMENT on the server where there is more than a request may have.

    Args:
        values: the tensor.
        counts: (what is counted, in the plural; how many there are; how many there may be), each.
    """
    checked = [require_in(f"the number of {name}", n, 0, most) for name, n, most in counts]
    with tf.control_dependencies(checked):
        return tf.identity(values)


def require_equal_batches(**texts):
    """The two texts; INVALID_ARGUMENT on the server unless they have as many rows."""
    (name, text), (other, second) = texts.items()
    sizes = [tf.shape(text)[0], tf.shape(second)[0]]
    message = [f"{name} and {other} must have as many rows, got", *sizes]
    return after(tf.equal(*sizes), message, (text, second))


def after(condition, message, values):
    """`values`, for use after the check: else an op that they break may fail before it."""
    with tf.control_dependencies([tf.debugging.Assert(condition, message)]):
        return tf.nest.map_structure(tf.identity, values)
