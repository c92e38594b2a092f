"""Keeps the old import path of `without_padding`, which is now in `tfformer.layers.rows`."""

from tfformer.layers.rows import without_padding

__all__ = ["without_padding"]
