"""Tasks: what a model is trained to do. `TASKS` has them by the name that a recipe gives."""

from training.tasks.language_model import LanguageModelling
from training.tasks.non_autoregressive import NonAutoregressiveTranslation
from training.tasks.translation import Translation

TASKS = {
    "translation": Translation(),
    "language-model": LanguageModelling(),
    "non-autoregressive": NonAutoregressiveTranslation(),
}
