"""The plan of a training: chooses settings that are not given, and describes the training."""

import dataclasses

from . import FOR_LARGE, FOR_SMALL
from .rules import AUTO

# A corpus with fewer pairs is small: the paper's base model would overfit it, and take hours on a
# CPU.
SMALL_CORPUS = 200_000
# The share of all steps in which the rate rises; at most the paper's 4,000 steps.
WARMUP_SHARE = 0.1
WARMUP_MAX = 4000
# The maximum rate. For a short warm-up, the paper's formula would give more.
PEAK = 0.0025


def chosen(recipe, task, corpus, tokenizer):
    """The recipe with the settings of `recipe.choose` chosen from the training corpus.

    Raises:
        ValueError: the given sizes do not fit the chosen preset.
    """
    table = FOR_SMALL if len(corpus) < SMALL_CORPUS else FOR_LARGE
    known = {name: value for name, value in table.items() if name in recipe.choose}
    recipe = dataclasses.replace(recipe, **known)
    # The size that fits on the device is found later.
    tokens = table["batch_tokens"] if recipe.batch_tokens == AUTO else recipe.batch_tokens
    steps = len(task.batches(corpus, tokenizer, tokens, recipe.max_tokens)) * recipe.epochs
    if "warmup_steps" in recipe.choose:
        warmup = min(WARMUP_MAX, _warmup(steps))
        recipe = dataclasses.replace(recipe, warmup_steps=warmup)
    if "learning_rate_scale" in recipe.choose:
        sizes = tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size
        config = task.configuration(recipe, *sizes, tokenizer.is_shared)
        peak = (config.d_model * recipe.warmup_steps) ** -0.5
        recipe = dataclasses.replace(recipe, learning_rate_scale=round(min(1.0, PEAK / peak), 3))
    return dataclasses.replace(recipe, choose=())


def lines(recipe, what, steps, parameters):
    """Yields lines that describe the training before it starts.

    `what` is the size of the corpus in words, `steps` the number of steps in an epoch.
    """
    every, rises = steps * recipe.epochs, recipe.warmup_steps
    yield (
        f"plan: {what}; {steps:,} steps an epoch, {every:,} in {recipe.epochs} epochs; "
        f"{parameters:,} parameters"
    )
    if not recipe.warmup:
        yield f"the learning rate is at its peak until step {rises:,}"
    elif rises < every:
        yield f"the learning rate rises until step {rises:,}"
    else:
        yield (
            f"the learning rate rises until step {rises:,}, after the end, so the model will learn "
            f"little: give --warmup-steps {_warmup(every)}, or more epochs"
        )


def _warmup(steps):
    """The number of warm-up steps for a training of `steps` steps."""
    return max(1, round(WARMUP_SHARE * steps))
