"""The import path that people have of `without_padding`; it lives in `tfformer.layers.rows`."""

from tfformer.layers.rows import without_padding

__all__ = ["without_padding"]
