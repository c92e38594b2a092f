"""Checkpoints: the complete state of a training in one file, which is either complete or absent.

The state is the weights, the optimizer, every random generator (dropout), the metrics, and the
position in the data. A run that is killed and resumed from a checkpoint ends with the same weights
as a run that was not killed.
"""

import json
from pathlib import Path

import numpy as np

from tfformer.files import RunError, pack, read_arrays, read_bytes, unpack, write_atomically


class NotFinite(ValueError):
    """The weights contain a NaN or an infinity."""


def _groups(model):
    return {
        "model": model.variables,
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }


def save(path, model, progress, write=True):
    """Writes the complete state of a compiled model, and `progress`, any JSON value.

    `write` is False in a worker that is not the chief. Metrics are sums over all workers, so all
    workers must read them together. If a weight is not finite, `NotFinite` is raised.
    """
    arrays = {}
    for group, variables in _groups(model).items():
        for n, variable in enumerate(variables):
            arrays[f"{group}/{n:04d}"] = value = np.asarray(variable).copy()
            if group == "model" and not np.isfinite(value).all():
                raise NotFinite(f"{variable.path} is not finite")
    if not write:
        return
    arrays["progress"] = np.frombuffer(json.dumps(progress).encode(), dtype=np.uint8)
    write_atomically(path, pack(arrays))


def restore(path, model):
    """Restores a saved state into a compiled and built model; returns `progress`.

    Raises a RunError if the file is damaged, or belongs to another model.
    """
    path = Path(path)
    try:
        arrays = unpack(read_bytes(path))
        progress = json.loads(arrays.pop("progress").tobytes())
    except Exception as error:
        raise RunError(f"{path} is damaged: {error}") from error
    variables = {
        f"{group}/{n:04d}": variable
        for group, members in _groups(model).items()
        for n, variable in enumerate(members)
    }
    if {k: tuple(v.shape) for k, v in variables.items()} != {k: v.shape for k, v in arrays.items()}:
        raise RunError(f"{path} is the checkpoint of another model, or of another --dtype")
    for name, variable in variables.items():
        variable.assign(arrays[name])
    return progress


class EpochWeights:
    """The weights after each of the last epochs, at most `maximum`, in a folder, for averaging.

    `epoch-7.npz` has those after epoch 7.
    """

    def __init__(self, folder, maximum):
        self.folder, self.maximum = Path(folder), maximum

    def _file(self, epoch):
        return self.folder / f"epoch-{epoch}.npz"

    def write(self, epoch, weights):
        """Writes the weights after this epoch, arrays by name, and removes old files."""
        write_atomically(self._file(epoch), pack(weights))
        for path in self.folder.glob("epoch-*.npz"):
            number = path.stem.removeprefix("epoch-")
            if number.isdecimal() and int(number) <= epoch - self.maximum:
                path.unlink(missing_ok=True)

    def epochs(self, last):
        """The epochs up to this one whose weights are stored."""
        epochs = range(max(1, last - self.maximum + 1), last + 1)
        return [epoch for epoch in epochs if self._file(epoch).exists()]

    def mean(self, epochs):
        """The mean of the weights after these epochs. Raises RunError if a file is damaged."""
        return average(read_arrays(self._file(epoch)) for epoch in epochs)


def average(models):
    """The mean of the weights of several models, given as an iterable of arrays by name. Only one
    model is in memory at a time."""
    total, count = {}, 0
    for weights in models:
        count += 1
        for name, value in weights.items():
            total[name] = total.get(name, 0) + value.astype("float64")
    return {name: (value / count).astype("float32") for name, value in total.items()}
