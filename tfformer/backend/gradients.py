"""What the functions with a gradient of their own share."""


def upstream_gradient(args, upstream):
    """The gradient that reaches the one output of a `keras.ops.custom_gradient` function.

    Of its `def gradient(*args, upstream=None)`: Keras's backends hand it over as the one or the
    other.
    """
    return args[0] if upstream is None else upstream
