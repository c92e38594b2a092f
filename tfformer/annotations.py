"""The types that the annotations of several modules share."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

# A tensor of the backend, or what Keras and TensorFlow convert to one: a NumPy array, nested lists.
# TensorFlow's and JAX's tensors have no common static type, and Keras itself has no annotations.
Tensor: TypeAlias = Any
# The shape of a tensor: a tuple, or a backend's own. None is a size that is not known yet.
Shape: TypeAlias = Sequence[int | None]
# A function that returns the result of `fuse`: the inference layers of a model, and its weights.
Fuse: TypeAlias = Callable[..., Any]
StrPath: TypeAlias = str | os.PathLike[str]
