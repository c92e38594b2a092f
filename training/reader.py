"""The import path that recipes have of pairs; they live in `training.data.reader`."""

from .data.reader import Pair, read_pairs

__all__ = ["Pair", "read_pairs"]
