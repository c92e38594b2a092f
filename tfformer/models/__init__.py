"""The models, built from `tfformer.layers`. Each maps ids to logits."""

from typing import NamedTuple

from tfformer.config import (
    ClassifierConfig,
    EmbedderConfig,
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    NonAutoregressiveConfig,
    RecurrentConfig,
    SpanConfig,
    TaggerConfig,
    TransformerConfig,
)
from tfformer.models.classifier import Classifier
from tfformer.models.embedder import Embedder
from tfformer.models.language_model import LanguageModel
from tfformer.models.masked_language_model import MaskedLanguageModel
from tfformer.models.non_autoregressive import NonAutoregressive
from tfformer.models.recurrent import Recurrent
from tfformer.models.span_reader import SpanReader
from tfformer.models.tagger import Tagger
from tfformer.models.transformer import Transformer


class Family(NamedTuple):
    """The classes of a model family: its configuration, and its model, made by `model(config)`."""

    configuration: type
    model: type

    def read_configuration(self, fields):
        """Make the configuration from fields by name. Raises ValueError or TypeError."""
        return self.configuration.from_dict(fields)


# The default family, for a run whose config.json names none.
ENCODER_DECODER = "encoder-decoder"
LANGUAGE_MODEL = "language-model"
NON_AUTOREGRESSIVE = "non-autoregressive"
CLASSIFIER = "classifier"
TAGGER = "tagger"
SPAN = "span"
MASKED_LANGUAGE_MODEL = "masked-language-model"
RECURRENT = "recurrent"
EMBEDDER = "embedder"
FAMILIES = {
    ENCODER_DECODER: Family(TransformerConfig, Transformer),
    LANGUAGE_MODEL: Family(LanguageModelConfig, LanguageModel),
    MASKED_LANGUAGE_MODEL: Family(MaskedLanguageModelConfig, MaskedLanguageModel),
    CLASSIFIER: Family(ClassifierConfig, Classifier),
    TAGGER: Family(TaggerConfig, Tagger),
    SPAN: Family(SpanConfig, SpanReader),
    NON_AUTOREGRESSIVE: Family(NonAutoregressiveConfig, NonAutoregressive),
    RECURRENT: Family(RecurrentConfig, Recurrent),
    EMBEDDER: Family(EmbedderConfig, Embedder),
}

# The families that translate a source.
TRANSLATING = (ENCODER_DECODER, NON_AUTOREGRESSIVE, RECURRENT)


def family_of(model):
    """The name of a model's family. A subclass belongs to the family of its nearest base class.

    Raises:
        ValueError: the model belongs to no family.
    """
    names = {family.model: name for name, family in FAMILIES.items()}
    for kind in type(model).__mro__:
        if kind in names:
            return names[kind]
    raise ValueError(f"model must be of a family of {list(FAMILIES)}, got {type(model).__name__}")
