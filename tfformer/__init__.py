"""tfformer: the Transformer in Keras layers, from `model.fit` to TensorFlow Serving.

This file imports everything that needs only Keras, so a `.keras` file loads after a plain
`import tfformer`. Tokenizer, search and translator need TensorFlow and tensorflow-text, and are
imported on first use.
"""

import importlib

try:
    import keras  # noqa: F401
except ModuleNotFoundError as error:
    missing = error.name.partition(".")[0]
    raise ImportError(
        f"tfformer needs Keras with a backend, and {missing} is not installed: "
        "pip install 'tfformer[tensorflow]', or install jax and set KERAS_BACKEND=jax"
    ) from None

from tfformer.config import (
    ClassifierConfig,
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    NonAutoregressiveConfig,
    SpanConfig,
    TaggerConfig,
    TransformerConfig,
)
from tfformer.ctc import CTCLoss
from tfformer.files import RunError
from tfformer.layers.attention import MultiHeadAttention, scaled_dot_product_attention
from tfformer.layers.decoder import Decoder, DecoderLayer
from tfformer.layers.embedding import TokenEmbedding
from tfformer.layers.encoder import Encoder, EncoderLayer
from tfformer.layers.feed_forward import FeedForward
from tfformer.layers.keras_hub import from_keras_hub, to_keras_hub
from tfformer.layers.positions import LearnedPositionalEmbedding, SinusoidalPositionalEncoding
from tfformer.layers.rows import without_padding
from tfformer.loss import (
    LabelCrossEntropy,
    LengthCrossEntropy,
    PlaceCrossEntropy,
    SmoothedCrossEntropy,
)
from tfformer.metrics import LabelAccuracy, LabelPerplexity, Perplexity, TokenAccuracy
from tfformer.models.classifier import Classifier
from tfformer.models.language_model import LanguageModel
from tfformer.models.masked_language_model import MaskedLanguageModel
from tfformer.models.non_autoregressive import NonAutoregressive
from tfformer.models.span_reader import SpanReader
from tfformer.models.tagger import Tagger
from tfformer.models.transformer import Transformer
from tfformer.run import load, load_translator, save
from tfformer.schedule import WarmupSchedule
from tfformer.shortlist import Shortlist

__version__ = "0.1.0"

_NEED_TENSORFLOW = {
    "GapFiller": "tfformer.service.gap_filler",
    "ParallelTranslator": "tfformer.service.parallel_translator",
    "SpanAnswers": "tfformer.service.span_answers",
    "SpecialIds": "tfformer.search",
    "State": "tfformer.search",
    "StepResult": "tfformer.search",
    "TextGenerator": "tfformer.service.text_generator",
    "TextTagger": "tfformer.service.text_tagger",
    "TextClassifier": "tfformer.service.text_classifier",
    "Tokenizer": "tfformer.text.tokenizer",
    "Translator": "tfformer.service.translator",
    "beam_search": "tfformer.search",
    "exhaustive_search": "tfformer.search",
    "generate": "tfformer.inference.generate",
    "greedy_search": "tfformer.search",
    "sample_search": "tfformer.search",
}

__all__ = [
    "CTCLoss",
    "Classifier",
    "ClassifierConfig",
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "GapFiller",
    "LabelAccuracy",
    "LabelCrossEntropy",
    "LabelPerplexity",
    "LanguageModel",
    "LanguageModelConfig",
    "LearnedPositionalEmbedding",
    "LengthCrossEntropy",
    "MaskedLanguageModel",
    "MaskedLanguageModelConfig",
    "MultiHeadAttention",
    "NonAutoregressive",
    "NonAutoregressiveConfig",
    "ParallelTranslator",
    "Perplexity",
    "PlaceCrossEntropy",
    "RunError",
    "Shortlist",
    "SinusoidalPositionalEncoding",
    "SmoothedCrossEntropy",
    "SpanAnswers",
    "SpanConfig",
    "SpanReader",
    "SpecialIds",
    "State",
    "StepResult",
    "Tagger",
    "TaggerConfig",
    "TextClassifier",
    "TextGenerator",
    "TextTagger",
    "TokenAccuracy",
    "TokenEmbedding",
    "Tokenizer",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "WarmupSchedule",
    "beam_search",
    "exhaustive_search",
    "from_keras_hub",
    "generate",
    "greedy_search",
    "load",
    "load_translator",
    "sample_search",
    "save",
    "scaled_dot_product_attention",
    "to_keras_hub",
    "without_padding",
]


def __getattr__(name):
    if name not in _NEED_TENSORFLOW:
        raise AttributeError(f"module 'tfformer' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_NEED_TENSORFLOW[name]), name)
    except ModuleNotFoundError as error:
        if error.name.startswith("tfformer"):
            raise
        raise ImportError(
            f"tfformer.{name} needs {error.name}, which is not installed: "
            "pip install 'tfformer[tensorflow]'"
        ) from error
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
