"""Converts the weights that all decoder-only models of Hugging Face have.

The embedding is divided by sqrt(D), because our models multiply it by that. If the output layer
uses the same matrix, the last norm, which only the output layer reads, is multiplied by sqrt(D).
"""

import math

import numpy as np

from tfformer.models import LANGUAGE_MODEL

from .id_mapping import NEVER
from .imported import Imported
from .weights import compact

HEAD = "lm_head.weight"


class DecoderWeights:
    """Reads weights into `found`, {our name: array}.

    Args:
        weights: the `Weights` of the file.
        width: D.
        numbering: the `Numbering` of the ids.
    """

    def __init__(self, weights, width, numbering):
        self.weights, self.width, self.numbering, self.found = weights, width, numbering, {}

    def take(self, name, *shape):
        return self.weights.take(name, *shape)

    def read_norm(self, theirs, ours, parts):
        """Reads a norm; `parts` is {their name: ours} of its vectors."""
        for their_name, our_name in parts.items():
            array = self.take(f"{theirs}.{their_name}", self.width)
            self.found[f"{ours}/{our_name}"] = array

    def put(self, name, kernel, bias=None):
        """Stores a dense layer: kernel [in, out], and its bias, if it has one."""
        self.found[f"{name}/kernel"] = compact(kernel)
        if bias is not None:
            self.found[f"{name}/bias"] = bias

    def read_tables(self, table, size, tied, impossible):
        """Reads the embedding with this name and the output layer, after the last norm.

        Args:
            table: the name of the embedding.
            size: the number of the original's ids.
            tied: whether the output layer uses the same matrix.
            impossible: the original's ids with probability 0.
        """
        numbering, scale = self.numbering, math.sqrt(self.width)
        if tied:
            self.weights.require_same(table, HEAD)
            self.weights.pass_over(HEAD)
            for name in ("decoder/final_norm/gamma", "decoder/final_norm/beta"):
                if name in self.found:
                    self.found[name] = self.found[name] * scale
        else:
            head = numbering.rows(self.take(HEAD, size, self.width))
            self.found["output_projection/kernel"] = head.T
        embedding = numbering.rows(self.take(table, size, self.width))
        embedding /= scale
        self.found["embedding/embeddings"] = embedding
        bias = np.zeros(len(numbering.old), "float32")
        never = [n for n, old in enumerate(numbering.old) if old is None or old in impossible]
        bias[[*numbering.unknown, *never]] = NEVER
        self.found["output_projection/bias"] = bias

    def imported(self, config, tokenizer, search, system):
        """The `Imported` of a model whose weights are all read, of the family `system`."""
        self.weights.require_all_taken()
        origin = {"system": f"{system} of Hugging Face", "file": self.weights.path.name}
        return Imported(config, self.found, tokenizer, search, origin, family=LANGUAGE_MODEL)


def require_table(weights, name, options, width):
    """Raises a ValueError unless the embedding has the sizes of the options, before arrays of these
    sizes are allocated."""
    shape = options["vocab_size"], options[width]
    if name not in weights:
        raise ValueError(f"{weights.path} must have a weight {name}, got none")
    if weights.shape(name) != shape:
        raise ValueError(
            f"{weights.path}: {name} must be of shape {shape}, got {weights.shape(name)}"
        )
