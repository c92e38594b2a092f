"""The weights of a model of another system. Each is taken once, by name and shape."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np

from tfformer.files import LONGEST_TEXT, is_file_name, read_bytes

from .safetensors import read_safetensors
from .torch_file import read_torch

READERS = {"model.safetensors": read_safetensors, "pytorch_model.bin": read_torch}
INDEX = "model.safetensors.index.json"  # the index of a model in several files


class Weights:
    """Arrays by name, from `path`, with a record of those not yet taken. An array that is taken is
    removed, so that memory does not hold it twice."""

    def __init__(self, arrays, path):
        self._arrays, self.path = dict(arrays), path
        self._shapes = {name: array.shape for name, array in arrays.items()}
        self._left = set(arrays)

    @classmethod
    def of_folder(cls, folder):
        """Reads the first file of `READERS` that a folder has, or all files that `INDEX` names."""
        for name, read in READERS.items():
            path = Path(folder, name)
            if path.exists():
                return cls(read(path), path)
        path = Path(folder, INDEX)
        if path.exists():
            return cls(_of_parts(path), path)
        raise ValueError(f"{folder} must have one of {[*READERS, INDEX]}, got none")

    def __contains__(self, name):
        return name in self._shapes

    def shape(self, name):
        """The shape of the array with this name; () if there is none."""
        return self._shapes.get(name, ())

    def take(self, name, *shape):
        """Removes the array with this name and returns it as float32.

        Raises:
            ValueError: there is no such array, it has another shape, or it is not finite.
        """
        if name not in self._arrays:
            raise ValueError(f"{self.path} must have a weight {name}, got none")
        array = self._arrays.pop(name)
        self._left.discard(name)
        if array.shape != shape:
            raise ValueError(f"{self.path}: {name} must be of shape {shape}, got {array.shape}")
        if array.dtype.kind != "f" and array.dtype != ml_dtypes.bfloat16:
            raise ValueError(f"{self.path}: {name} must be of floats, got {array.dtype}")
        array = array.astype("float32", copy=False)
        if not np.isfinite(array).all():
            raise ValueError(f"{self.path}: {name} must be finite, got NaN or infinity")
        return array

    def require_same(self, *names):
        """Raises a ValueError if the arrays with these names differ. Missing ones are ignored."""
        first, *others = [name for name in names if name in self._arrays] or [None]
        for other in others:
            if not np.array_equal(self._arrays[first], self._arrays[other]):
                raise ValueError(f"{self.path}: {first} and {other} must be one matrix, got two")

    def pass_over(self, *names):
        """Removes the arrays with these names, if they exist, without using them."""
        for name in names:
            self._arrays.pop(name, None)
        self._left -= set(names)

    def require_all_taken(self):
        """Raises a ValueError if an array is left. The message names one."""
        if self._left:
            raise ValueError(f"{self.path}: nothing here has a weight {sorted(self._left)[0]}")


def _of_parts(index):
    """Reads the arrays of all files that an index names."""
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
