"""What every Muon needs, on whichever backend: its matrices, and the numbers of its steps."""

from tfformer.layers.recurrent import RecurrentDecoder, RecurrentEncoder
from tfformer.layers.stack import Stack

# Of an odd polynomial a s + b s^3 + c s^5 that moves every singular value s in (0, 1] towards 1:
# so steep at 0 that five passes bring all but the least into [0.68, 1.21] (Jordan et al. 2024).
A, B, C = 3.4445, -4.7750, 2.0315
PASSES = 5


def matrices_of(model):
    """What `Muon` takes: the matrices of all layers of a model's stacks.

    Returns:
        {path of the variable: (number of heads, axis that they stand along)}.
    """
    return {
        matrix.path: (matrix.heads, matrix.axis)
        for layers in model.parts().values()
        for layer in layers
        if isinstance(layer, Stack | RecurrentEncoder | RecurrentDecoder)
        for matrix in layer.matrices()
    }
