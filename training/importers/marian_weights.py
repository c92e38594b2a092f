"""Converts the weights of a Marian model of Hugging Face to our variables."""

import numpy as np

from tfformer.layers.positions import sinusoids

from .stack_weights import read_stacks


def read_weights(weights, options, numberings, impossible):
    """Which embeddings are tied, and {our name: array} of the weights.

    `numberings` are those of source and target: one object if they share a vocabulary. The ids
    `impossible` have probability 0. A weight that is missing, has another shape, is not finite or
    is not used is a ValueError.
    """
    order = alternating(options["d_model"])
    tied, found = read_stacks(weights, options, numberings, impossible, order)
    require_sinusoids(weights, options)
    weights.require_all_taken()
    return tied, found


def alternating(width):
    """For each position of [sine, cosine, sine, ...], its index in [all sines | all cosines]."""
    return np.arange(width).reshape(2, -1).T.ravel()


def require_sinusoids(weights, options):
    """Checks the position tables, which older files have: they must be the usual sinusoids."""
    length, width = options["max_position_embeddings"], options["d_model"]
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        if name in weights:
            table = weights.take(name, length, width)[:, alternating(width)]
            expected = np.asarray(sinusoids(np.arange(length), width))
            if not np.allclose(table, expected, atol=2e-3):  # float16 is accurate enough for this
                raise ValueError(f"{weights.path}: {name} must be sinusoids, got other numbers")
