"""Checks of a request in the graph. A failed check is INVALID_ARGUMENT on a server."""

import tensorflow as tf


def require_in(name, value, minimum, maximum):
    """`value`; INVALID_ARGUMENT on the server unless all its numbers are in [least, most]."""
    inside = tf.reduce_all((value >= minimum) & (value <= maximum))
    return after(inside, [f"{name} must be in [{minimum}, {maximum}], got", value], value)


def counted(values, *counts):
    """A tensor; INVALID_ARGUMENT on the server if a count exceeds its maximum.

    Args:
        values: the tensor.
        counts: for each count, (its name in the plural, the count, its maximum).
    """
    checked = [require_in(f"the number of {name}", n, 0, maximum) for name, n, maximum in counts]
    with tf.control_dependencies(checked):
        return tf.identity(values)


def require_equal_batches(**texts):
    """The two texts; INVALID_ARGUMENT on the server unless they have the same number of rows."""
    (name, text), (other, second) = texts.items()
    sizes = [tf.shape(text)[0], tf.shape(second)[0]]
    message = [f"{name} and {other} must have as many rows, got", *sizes]
    return after(tf.equal(*sizes), message, (text, second))


def after(condition, message, values):
    """`values`, for use after the check. Otherwise an op could fail on bad values before it."""
    with tf.control_dependencies([tf.debugging.Assert(condition, message)]):
        return tf.nest.map_structure(tf.identity, values)
