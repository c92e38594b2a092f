"""Checkpoints: all that a training is at one moment, in one file, whole or not at all.

Beside the weights that is the state of the optimizer, of every random generator (dropout), of the
metrics, and the place in the data. A run that is killed and resumed from here ends with the very
weights of one that was not.
"""

import json
from pathlib import Path

import numpy as np
from keras import ops

from tfformer.run import RunError, pack, read_arrays, unpack, write_atomically


class NotFinite(ValueError):
    """The weights hold a NaN or an infinity."""


def _groups(model):
    return {
        "model": model.variables,
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }


def save(path, model, progress, write=True):
    """Writes the whole state of a compiled model, and `progress`, anything JSON.

    Args:
        path, model, progress: what and where.
        write: False in a worker that is not the chief. Metrics are sums over all workers, so all
            have to read them together.

    Raises:
        NotFinite: nothing is written.
        OSError: what was at `path` before is still there.
    """
    arrays = {}
    for group, variables in _groups(model).items():
        for n, variable in enumerate(variables):
            arrays[f"{group}/{n:04d}"] = value = ops.convert_to_numpy(
                ops.convert_to_tensor(variable)
            )
            if group == "model" and not np.isfinite(value).all():
                raise NotFinite(f"{variable.path} is not finite")
    if not write:
        return
    arrays["progress"] = np.frombuffer(json.dumps(progress).encode(), dtype=np.uint8)
    write_atomically(path, pack(arrays))


def restore(path, model):
    """Puts a saved state back into a compiled and built model; returns `progress`.

    Raises:
        RunError: the file is damaged, or of another model.
    """
    path = Path(path)
    try:
        arrays = unpack(path.read_bytes())
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


def average(paths):
    """The mean of the weights of several files written by `pack`, by name.

    Raises:
        RunError: a file is damaged.
    """
    total = {}
    for path in paths:
        for name, value in read_arrays(path).items():
            total[name] = total.get(name, 0) + value.astype("float64")
    return {name: (value / len(paths)).astype("float32") for name, value in total.items()}
