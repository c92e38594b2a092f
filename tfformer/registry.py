"""Registers the classes of tfformer with Keras before their modules are imported.

`keras.saving.load_model` finds a class in Keras's registry, where `register_keras_serializable`
puts it when its module is imported. tfformer imports its modules on first use. So this module puts
a stand-in for each class into the registry. The stand-in imports the class when Keras makes an
object from it.

`import tfformer` must not import Keras, which takes seconds. If Keras is imported later, the
stand-ins are registered then.
"""

import importlib
import importlib.abc
import importlib.util
import sys

PACKAGE = "tfformer"
# The module of each registered class; a test compares this table with Keras's registry.
MODULES = {
    "ctc": ["CTCAccuracy", "CTCLoss"],
    "distances": ["KLDivergence", "SquaredDistance"],
    "layers.attention": ["MultiHeadAttention"],
    "layers.decoder": ["Decoder", "DecoderLayer"],
    "layers.dropout": ["Dropout"],
    "layers.embedding": ["TokenEmbedding", "TokenTypes"],
    "layers.encoder": ["Encoder", "EncoderLayer"],
    "layers.feed_forward": ["FeedForward"],
    "layers.length": ["LengthPredictor"],
    "layers.location": ["Location"],
    "layers.norm": ["AdaNorm", "BatchNorm", "LayerNorm", "RMSNorm", "SimpleNorm"],
    "layers.output": ["Dense", "PointerGenerator", "Transform"],
    "layers.overlapping_windows": ["Pieces", "Recurrence"],
    "layers.relative_positions": ["Alibi", "RelativeBias", "Rotary"],
    "layers.pooling": ["Pooling"],
    "layers.positions": [
        "LearnedPositionalEmbedding",
        "NoPositions",
        "SinusoidalPositionalEncoding",
    ],
    "layers.recurrent": ["RecurrentDecoder", "RecurrentEncoder"],
    "layers.residual": ["Residual"],
    "layers.upsampling": ["Upsampling"],
    "loss": [
        "LabelCrossEntropy",
        "LengthCrossEntropy",
        "PositionCrossEntropy",
        "SmoothedCrossEntropy",
    ],
    "metrics": [
        "LabelAccuracy",
        "LabelPerplexity",
        "Perplexity",
        "PositionAccuracy",
        "PositionPerplexity",
        "TokenAccuracy",
    ],
    "models.classifier": ["Classifier"],
    "models.embedder": ["Embedder"],
    "models.language_model": ["LanguageModel"],
    "models.masked_language_model": ["MaskedLanguageModel"],
    "models.non_autoregressive": ["NonAutoregressive"],
    "models.recurrent": ["Recurrent"],
    "models.span_reader": ["SpanReader"],
    "models.tagger": ["Tagger"],
    "models.transformer": ["Transformer"],
    "schedule": ["WarmupSchedule"],
}
# Names in files of earlier versions.
OLD_NAMES = {
    "PlaceAccuracy": "PositionAccuracy",
    "PlaceCrossEntropy": "PositionCrossEntropy",
    "PlacePerplexity": "PositionPerplexity",
}


class Later:
    """Stands for a class in Keras's registry until an object is made from it.

    Args:
        module, name: where the class is.
    """

    def __init__(self, module, name):
        self.module, self.name = module, name

    def from_config(self, config):
        return getattr(importlib.import_module(self.module), self.name).from_config(config)


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Calls `register` once more after Keras was imported."""

    def __init__(self):
        self.searching = False

    def find_spec(self, name, path, target=None):
        if name != "keras" or self.searching:
            return None
        self.searching = True  # the other finders search
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module):
                run(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                register()

            spec.loader.exec_module = run_and_register
        return spec


def register():
    """Puts a stand-in for each class into Keras's registry, or does so when Keras is imported."""
    keras = sys.modules.get("keras")
    if keras is None:
        sys.meta_path.insert(0, _AfterKeras())
        return
    registry = keras.saving.get_custom_objects()
    modules = {name: module for module, names in MODULES.items() for name in names}
    for name in [*modules, *OLD_NAMES]:
        new = OLD_NAMES.get(name, name)
        registry.setdefault(f"{PACKAGE}>{name}", Later(f"{PACKAGE}.{modules[new]}", new))
