"""What Muon needs on every backend: the list of its matrices, and the constants of its steps."""

from tfformer.layers.recurrent import RecurrentDecoder, RecurrentEncoder
from tfformer.layers.stack import Stack

# Coefficients of an odd polynomial a s + b s^3 + c s^5 that moves every singular value s in (0, 1]
# towards 1. It is so steep at 0 that five passes bring all but the smallest into [0.68, 1.21]
# (Jordan et al. 2024).
A, B, C = 3.4445, -4.7750, 2.0315
PASSES = 5


def matrices_of(model):
    """The matrices that `Muon` updates, those of all layers of a model's stacks: {path of the
    variable: (number of heads, axis of the heads)}."""
    return {
        matrix.path: (matrix.heads, matrix.axis)
        for layers in model.parts().values()
        for layer in layers
        if isinstance(layer, Stack | RecurrentEncoder | RecurrentDecoder)
        for matrix in layer.matrices()
    }
