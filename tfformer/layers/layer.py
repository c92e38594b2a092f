"""What every layer here does with an argument that there is not, or that is no number."""

import difflib
import inspect
import numbers

import keras

# Arguments of every Keras layer.
OF_KERAS = ("activity_regularizer", "autocast", "dtype", "input_shape", "name", "trainable")
OF_KERAS_CALL = ("mask", "training")


class Layer(keras.layers.Layer):
    """A Keras layer that refuses an unknown argument by its name, and says which was meant.

    Args:
        **options: arguments of every Keras layer.

    Raises:
        TypeError: an argument that there is not, of the layer or of a call.
    """

    # {a name that people know from Keras: what to say in its place}, of the layer and of a call.
    MEANT = {}
    MEANT_IN_CALL = {}

    def __init__(self, **options):
        # (Of the class itself it would be that of Keras's `__new__`.)
        signature = getattr(type(self), "__signature__", None) or inspect.signature(self.__init__)
        known = [*signature.parameters, *OF_KERAS]
        unknown = [name for name in options if name not in OF_KERAS]
        _refuse(type(self).__name__, unknown, known, self.MEANT)
        super().__init__(**options)

    def __call__(self, *args, **options):
        known = inspect.signature(self.call).parameters
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            return super().__call__(*args, **options)
        unknown = [name for name in options if name not in known and name not in OF_KERAS_CALL]
        _refuse(f"a call of {type(self).__name__}", unknown, list(known), self.MEANT_IN_CALL)
        return super().__call__(*args, **options)


def _refuse(what, unknown, known, meant):
    """Raises a TypeError that names the first of these arguments."""
    for name in unknown:
        near = difflib.get_close_matches(name, known, 1)
        hint = meant.get(name) or (f"did you mean {near[0]}?" if near else "")
        names = [one for one in known if one not in (*OF_KERAS, "kwargs", "options")]
        raise TypeError(f"{what} has no argument {name}: {hint or f'it has {names}'}")


def check_whole(least=1, **values):
    """Raises a ValueError unless each is an integer of at least `least`; a bool is none."""
    for name, value in values.items():
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not whole or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_share(name, value):
    """Raises a ValueError unless it is a number in [0, 1)."""
    if not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(f"{name} must be a number in [0, 1), got {value!r}")
