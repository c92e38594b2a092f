"""The weights of a model of another system. Each is taken once, by name and shape."""

import contextlib
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import safetensors

from tfformer.files import LONGEST_TEXT, is_file_name, open_regular, read_bytes

from .torch_file import read_torch

INDEX = "model.safetensors.index.json"  # the index of a model in several files
LOWER = np.uint32(0xFFFF)  # the bits of a float32 that bfloat16 lacks


class Stored(NamedTuple):
    """An array in a file: its shape, and the function that reads it."""

    shape: tuple
    read: Callable


class Weights:
    """Arrays by name, from `path`, with a record of those not yet taken.

    Args:
        arrays: {name: `Stored` or array}.
        path: where they are from.
    """

    def __init__(self, arrays, path):
        self.path = path
        self._stored = {
            name: one if isinstance(one, Stored) else Stored(one.shape, lambda one=one: one)
            for name, one in arrays.items()
        }
        self._shapes = {name: stored.shape for name, stored in self._stored.items()}

    @classmethod
    def of_folder(cls, folder):
        """Opens the first file of `READERS` that a folder has."""
        for name, read in READERS.items():
            path = Path(folder, name)
            if path.exists():
                return cls(read(path), path)
        raise ValueError(f"{folder} must have one of {[*READERS]}, got none")

    def __contains__(self, name):
        return name in self._shapes

    def shape(self, name):
        """The shape of the array with this name; () if there is none."""
        return self._shapes.get(name, ())

    def take(self, name, *shape):
        """Reads the array with this name as float32. It can be taken once, so that memory does not
        hold it twice.

        Raises:
            ValueError: there is no such array, it has another shape, or it is not finite.
        """
        if name not in self._stored:
            raise ValueError(f"{self.path} must have a weight {name}, got none")
        stored = self._stored.pop(name)
        if stored.shape != shape:
            raise ValueError(f"{self.path}: {name} must be of shape {shape}, got {stored.shape}")
        array = stored.read()
        if array.dtype.kind != "f" and array.dtype != ml_dtypes.bfloat16:
            raise ValueError(f"{self.path}: {name} must be of floats, got {array.dtype}")
        array = array.astype("float32", copy=False)
        if not np.isfinite(array).all():
            raise ValueError(f"{self.path}: {name} must be finite, got NaN or infinity")
        return array

    def require_same(self, *names):
        """Raises a ValueError if the arrays with these names differ. Missing ones are ignored."""
        first, *others = [name for name in names if name in self._stored] or [None]
        for other in others:
            if not np.array_equal(self._stored[first].read(), self._stored[other].read()):
                raise ValueError(f"{self.path}: {first} and {other} must be one matrix, got two")

    def pass_over(self, *names):
        """Removes the arrays with these names, if they exist, without using them."""
        for name in names:
            self._stored.pop(name, None)

    def require_all_taken(self):
        """Raises a ValueError if an array is left. The message names one."""
        if self._stored:
            raise ValueError(f"{self.path}: the model here has no weight {sorted(self._stored)[0]}")


def compact(array):
    """A float32 matrix as bfloat16 if that changes no value, as in a model that was stored so;
    any other array as it is."""
    if array.ndim < 2 or array.dtype != "float32":
        return array
    for rows in array.view("uint32"):  # the first row usually decides
        if (rows & LOWER).any():
            return array
    return array.astype(ml_dtypes.bfloat16)


def read_safetensors(path):
    """{name: `Stored`} of a safetensors file. An array is read when it is needed.

    Raises:
        ValueError: it is no safetensors file, or its header does not fit the file.
    """
    open_regular(path).close()  # not a pipe, on which the library would wait
    with _opened(path) as file:
        names = file.keys()
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    read = functools.partial(_read_array, path)
    return {name: Stored(shape, functools.partial(read, name)) for name, shape in shapes.items()}


def _read_array(path, name):
    """Reads one array. The file is mapped, and closing it unmaps what was read."""
    with _opened(path) as file:
        try:
            return file.get_tensor(name)
        except (AttributeError, TypeError) as error:  # NumPy lacks the number format
            raise ValueError(f"{name} must be of floats that NumPy has: {error}") from error


@contextlib.contextmanager
def _opened(path):
    """An open safetensors file. A damaged one is a ValueError."""
    try:
        with safetensors.safe_open(path, "np") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged, or no safetensors file: {error!s:.300}") from error


def _read_parts(index):
    """The arrays of all files that an index names."""
    content = read_bytes(index, LONGEST_TEXT)
    try:
        names = set(json.loads(content)["weight_map"].values())
        if wrong := [name for name in names if not is_file_name(name)]:
            raise ValueError(f"it names {wrong[0]:.99}, which is no file beside it")
        if missing := [name for name in names if not index.with_name(name).exists()]:
            raise ValueError(f"it names {missing[0]}, which is missing")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{index} must say which file has which weight: {error}") from error
    parts = [read_safetensors(index.with_name(name)) for name in sorted(names)]
    return {name: array for part in parts for name, array in part.items()}


READERS = {
    "model.safetensors": read_safetensors,
    INDEX: _read_parts,
    "pytorch_model.bin": read_torch,
}
