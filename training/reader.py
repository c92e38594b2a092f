"""The import path of pairs for recipes. The code is in `training.data.reader`."""

from .data.reader import Pair, read_pairs

__all__ = ["Pair", "read_pairs"]
