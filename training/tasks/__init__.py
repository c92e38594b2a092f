"""Tasks: what a model is trained to do. `TASKS` has them by the name that a recipe gives."""

from training.tasks.translation import Translation

TASKS = {
    "translation": Translation(),
}
