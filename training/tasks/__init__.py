"""Tasks define what a model is trained to do. `TASKS` lists them by their names in recipes."""

from training.tasks.classification import Classification, MultiLabelClassification
from training.tasks.language_model import LanguageModelling
from training.tasks.masked_language_model import MaskedLanguageModelling
from training.tasks.non_autoregressive import NonAutoregressiveTranslation
from training.tasks.recurrent import RecurrentTranslation
from training.tasks.span import SpanReading
from training.tasks.tagging import Tagging
from training.tasks.translation import Translation

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
