"""The matrices of a layer: what its products cost, and how an optimizer may take them apart."""

from typing import NamedTuple


class Matrix(NamedTuple):
    """A matrix that each row of a layer's input is multiplied with.

    variable: the matrix, [in, out].
    heads: how many matrices of attention heads stand side by side in it. Default 1.
    axis: the axis that they stand along, 0 or 1. Default 1.
    of_memory: whether it multiplies the rows of the memory, not the layer's own. Default False.
    """

    variable: object
    heads: int = 1
    axis: int = 1
    of_memory: bool = False
