"""Shared code of the functions with an explicit gradient."""


def upstream_gradient(args, upstream):
    """The gradient with respect to the single output of a `keras.ops.custom_gradient` function.

    For its `def gradient(*args, upstream=None)`: some Keras backends pass the gradient as the
    positional argument, others as `upstream`.
    """
    return args[0] if upstream is None else upstream
