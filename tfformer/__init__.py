"""tfformer: the Transformer in Keras layers, from `model.fit` to TensorFlow Serving.

Each public name is imported on first use, so `import tfformer` takes no time and commands start
fast. Most names need only Keras; tokenizer, search and services also need TensorFlow and
tensorflow-text.

A `.keras` file with layers of tfformer loads after a plain `import tfformer` (see `registry`).
"""

import importlib
import importlib.util
import warnings

from tfformer import checkout, registry

__version__ = "0.1.0"

# The module of each public name.
_MODULES = {
    "CTCLoss": "tfformer.ctc",
    "Classifier": "tfformer.models.classifier",
    "ClassifierConfig": "tfformer.config",
    "CommandError": "tfformer.commands",
    "Decoder": "tfformer.layers.decoder",
    "DecoderLayer": "tfformer.layers.decoder",
    "Embedder": "tfformer.models.embedder",
    "EmbedderConfig": "tfformer.config",
    "Encoder": "tfformer.layers.encoder",
    "EncoderLayer": "tfformer.layers.encoder",
    "FeedForward": "tfformer.layers.feed_forward",
    "GapFiller": "tfformer.service.gap_filler",
    "LabelAccuracy": "tfformer.metrics",
    "LabelCrossEntropy": "tfformer.loss",
    "LabelPerplexity": "tfformer.metrics",
    "LanguageModel": "tfformer.models.language_model",
    "LanguageModelConfig": "tfformer.config",
    "LearnedPositionalEmbedding": "tfformer.layers.positions",
    "LengthCrossEntropy": "tfformer.loss",
    "MaskedLanguageModel": "tfformer.models.masked_language_model",
    "MaskedLanguageModelConfig": "tfformer.config",
    "MultiHeadAttention": "tfformer.layers.attention",
    "NonAutoregressive": "tfformer.models.non_autoregressive",
    "NonAutoregressiveConfig": "tfformer.config",
    "ParallelTranslator": "tfformer.service.parallel_translator",
    "Perplexity": "tfformer.metrics",
    "PositionCrossEntropy": "tfformer.loss",
    "RunError": "tfformer.files",
    "Shortlist": "tfformer.shortlist",
    "SinusoidalPositionalEncoding": "tfformer.layers.positions",
    "SmoothedCrossEntropy": "tfformer.loss",
    "SpanAnswers": "tfformer.service.span_answers",
    "SpanConfig": "tfformer.config",
    "SpanReader": "tfformer.models.span_reader",
    "SpecialIds": "tfformer.search",
    "State": "tfformer.search",
    "StepResult": "tfformer.search",
    "Tagger": "tfformer.models.tagger",
    "TaggerConfig": "tfformer.config",
    "TextClassifier": "tfformer.service.text_classifier",
    "TextEmbedder": "tfformer.service.text_embedder",
    "TextGenerator": "tfformer.service.text_generator",
    "TextTagger": "tfformer.service.text_tagger",
    "TokenAccuracy": "tfformer.metrics",
    "TokenEmbedding": "tfformer.layers.embedding",
    "Tokenizer": "tfformer.text.tokenizer",
    "Transformer": "tfformer.models.transformer",
    "TransformerConfig": "tfformer.config",
    "Translator": "tfformer.service.translator",
    "WarmupSchedule": "tfformer.schedule",
    "beam_search": "tfformer.search",
    "evaluate_run": "tfformer.commands",
    "exhaustive_search": "tfformer.search",
    "export_run": "tfformer.commands",
    "from_keras_hub": "tfformer.layers.keras_hub",
    "generate": "tfformer.inference.generate",
    "greedy_search": "tfformer.search",
    "import_hf": "tfformer.commands",
    "import_marian": "tfformer.commands",
    "import_opennmt": "tfformer.commands",
    "load": "tfformer.run",
    "load_translator": "tfformer.run",
    "sample_search": "tfformer.search",
    "save": "tfformer.run",
    "scaled_dot_product_attention": "tfformer.layers.attention",
    "to_keras_hub": "tfformer.layers.keras_hub",
    "train_model": "tfformer.commands",
    "verify_export": "tfformer.commands",
    "without_padding": "tfformer.layers.packing",
}

# Their names need TensorFlow; all others need Keras with any backend.
_NEED_TENSORFLOW = ("tfformer.inference", "tfformer.search", "tfformer.service", "tfformer.text")
# Names of earlier versions.
_OLD_NAMES = {"PlaceCrossEntropy": "PositionCrossEntropy"}

__all__ = list(_MODULES)


def __getattr__(name):
    if name in _OLD_NAMES:
        new = _OLD_NAMES[name]
        warnings.warn(f"tfformer.{name} is now tfformer.{new}", DeprecationWarning, stacklevel=2)
        return __getattr__(new)
    module = _MODULES.get(name, f"tfformer.{name}")
    if name not in _MODULES and (name.startswith("_") or not importlib.util.find_spec(module)):
        raise AttributeError(f"module 'tfformer' has no attribute {name!r}")
    try:
        value = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name.partition(".")[0]
        if missing == "tfformer":
            raise
        any_backend = not module.startswith(_NEED_TENSORFLOW)
        raise ImportError(
            f"tfformer.{name} needs {missing}, which is not installed: "
            "pip install 'tfformer[tensorflow]'"
            + ", or install jax and set KERAS_BACKEND=jax"
            * any_backend
        ) from None
    if name in _MODULES:
        value = globals()[name] = getattr(value, name)
    return value


def __dir__():
    return sorted({*globals(), *__all__})


checkout.find_commands()
registry.register()
