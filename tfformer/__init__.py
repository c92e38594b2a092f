"""tfformer: the Transformer in Keras layers, from `model.fit` to TensorFlow Serving.

Names load on first use. The layers, the model, the loss and the schedule need Keras alone; the
tokenizer, search and the translator need TensorFlow and tensorflow-text.
"""

import importlib
import sys

__version__ = "0.1.0"

_HOMES = {
    "tfformer.config": ("TransformerConfig",),
    "tfformer.transformer": ("Transformer",),
    "tfformer.layers.attention": ("MultiHeadAttention", "scaled_dot_product_attention"),
    "tfformer.layers.embedding": ("TokenEmbedding",),
    "tfformer.layers.positional_encoding": (
        "LearnedPositionalEmbedding",
        "SinusoidalPositionalEncoding",
    ),
    "tfformer.layers.feed_forward": ("FeedForward",),
    "tfformer.layers.encoder": ("Encoder", "EncoderLayer"),
    "tfformer.layers.decoder": ("Decoder", "DecoderLayer"),
    "tfformer.loss": ("Perplexity", "SmoothedCrossEntropy", "TokenAccuracy"),
    "tfformer.schedule": ("WarmupSchedule",),
    "tfformer.run": ("RunError", "load", "save"),
    "tfformer.tokenizer": ("Tokenizer",),
    "tfformer.search": ("beam_search", "exhaustive_search", "greedy_search", "sample_search"),
    "tfformer.translator": ("Translator",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_NEEDS_TENSORFLOW = ("tfformer.tokenizer", "tfformer.search", "tfformer.translator")

__all__ = sorted(_HOME_OF)


def _register():
    """Import all that a `.keras` file can name: Keras finds a class once its module is imported."""
    for module in _HOMES:
        if module not in _NEEDS_TENSORFLOW:
            importlib.import_module(module)


def __getattr__(name):
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tfformer' has no attribute {name!r}")
    module = _HOME_OF[name]
    try:
        value = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if module not in _NEEDS_TENSORFLOW or error.name.startswith("tfformer"):
            raise
        raise ImportError(
            f"tfformer.{name} needs {error.name}, which is not installed: "
            "pip install 'tfformer[tensorflow]'"
        ) from error
    globals()[name] = value
    if "keras" in sys.modules:
        _register()
    return value


def __dir__():
    return sorted({*globals(), *__all__})


if "keras" in sys.modules:
    _register()
