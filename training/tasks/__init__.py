"""Tasks define what a model is trained to do. `TASKS` lists them by their names in recipes."""

from .classification import Classification, MultiLabelClassification
from .language_model import LanguageModelling
from .masked_language_model import MaskedLanguageModelling
from .non_autoregressive import NonAutoregressiveTranslation
from .recurrent import RecurrentTranslation
from .span import SpanReading
from .tagging import Tagging
from .translation import Translation

TASKS = {
    "translation": Translation(),
    "language-model": LanguageModelling(),
    "non-autoregressive": NonAutoregressiveTranslation(),
    "masked-language-model": MaskedLanguageModelling(),
    "classifier": Classification(),
    "tagger": Tagging(),
    "span": SpanReading(),
    "multi-label-classifier": MultiLabelClassification(),
    "recurrent": RecurrentTranslation(),
}
