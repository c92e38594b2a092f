"""The base class of all layers: errors for unknown arguments and wrong widths, and inner layers
that stay frozen."""

import difflib
import functools
import inspect
from collections.abc import Iterable
from typing import Any

import keras

from tfformer.annotations import Tensor
from tfformer.config import whole

# Arguments of every Keras layer.
OF_KERAS = ("activity_regularizer", "autocast", "dtype", "input_shape", "name", "trainable")
OF_KERAS_CALL = ("mask", "training")


class KeepsFrozen:
    """A Keras layer or model whose inner layers stay frozen when it is saved, loaded or cloned.

    Keras saves only the `trainable` of the outer layer, so all inner layers become trainable. Here
    `get_config` lists the frozen inner layers, and `build` freezes them again.
    """

    frozen: tuple[str, ...] = ()  # paths inside this layer, as `get_config` gives them

    def _post_build(self):  # Keras calls it after each `build`
        super()._post_build()
        if not self.trainable:
            # The setter reaches the layers inside; an assignment of the same value is ignored.
            type(self).trainable.fset(self, False)
        for path, layer in self._paths():
            if path in self.frozen:
                layer.trainable = False

    def get_config(self):
        frozen = [] if self.built else list(self.frozen)
        for path, layer in self._paths() if self.trainable else ():
            inside = any(path.startswith(f"{other}/") for other in frozen)
            if not layer.trainable and not inside:
                frozen.append(path)
        return {**super().get_config(), **({"frozen": frozen} if frozen else {})}

    def _paths(self):
        """(path inside this layer, layer) of all inner layers that have weights, outer ones first.
        A layer shared by several layers has the path at which it was built."""
        own = f"{self.path}/"
        found = {
            layer.path.removeprefix(own): layer
            for layer in self._flatten_layers(include_self=False)
            if layer.built and layer.path and layer.weights
        }
        return sorted(found.items())


class Layer(KeepsFrozen, keras.layers.Layer):
    """A Keras layer that refuses an unknown argument by name and suggests the right one.

    Args:
        frozen: paths of inner layers that `build` freezes, see `KeepsFrozen`.
            Default: none.
        **options: arguments of every Keras layer.

    Raises:
        TypeError: the layer or a call gets an unknown argument.
    """

    # {an argument known from Keras: the hint to give instead}, for the layer and for a call.
    MEANT: dict[str, str] = {}
    MEANT_IN_CALL: dict[str, str] = {}

    def __init__(self, frozen: Iterable[str] = (), **options: Any) -> None:
        # (`signature(type(self))` would return that of Keras's `__new__`.)
        own = self.__init__  # type: ignore[misc]
        signature = getattr(type(self), "__signature__", None) or inspect.signature(own)
        known = [*signature.parameters, *OF_KERAS]
        unknown = [name for name in options if name not in OF_KERAS]
        _refuse(type(self).__name__, unknown, known, self.MEANT)
        super().__init__(**options)
        self.frozen = tuple(frozen)

    def __call__(self, *args: Any, **options: Any) -> Tensor:
        known = _arguments(type(self).call)
        if known is not None:
            unknown = [name for name in options if name not in known and name not in OF_KERAS_CALL]
            _refuse(f"a call of {type(self).__name__}", unknown, known, self.MEANT_IN_CALL)
        return super().__call__(*args, **options)


@functools.cache  # a layer is called often, and a signature takes longer than the check
def _arguments(call):
    """The arguments of a layer's `call` by name; None if it takes any."""
    _, *parameters = inspect.signature(call).parameters.values()  # without self
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]


def _refuse(what, unknown, known, meant):
    """Raises a TypeError that names the first unknown argument."""
    for name in unknown:
        near = difflib.get_close_matches(name, known, 1)
        hint = meant.get(name) or (f"did you mean {near[0]}?" if near else "")
        names = [one for one in known if one not in (*OF_KERAS, "kwargs", "options")]
        raise TypeError(f"{what} has no argument {name}: {hint or f'it has {names}'}")


def check_whole(**values):
    """Raises a ValueError unless each is an integer of at least 1."""
    for name, value in values.items():
        whole(name, value)


def check_width(shape, d_model):
    """Raises a ValueError if x is not [..., D]. Without this check a width of 1 would broadcast."""
    if shape is not None and shape[-1] != d_model:
        raise ValueError(f"x must be [..., D] with D = d_model = {d_model}, got {tuple(shape)}")
