"""The plan of a training: what is chosen where nobody has, and what is said before it begins."""

import dataclasses

from training.recipe import FOR_LARGE, FOR_SMALL
from training.recipe.rules import AUTO

# With fewer pairs a corpus is small: the paper's base model would learn it by heart, and take hours
# on a CPU.
SMALL_CORPUS = 200_000
# Of all steps, those in which the rate rises; never more than the paper's 4,000.
WARMUP_SHARE = 0.1
WARMUP_MOST = 4000
# The highest rate. The paper's formula gives more to a short warm-up.
PEAK = 0.0025


def chosen(recipe, task, corpus, tokenizer):
    """The recipe with the settings of `recipe.choose` chosen from its corpus.

    Args:
        recipe: a `Recipe`.
        task: its `Task`.
        corpus: that of training.
        tokenizer: of the run.

    Raises:
        ValueError: the sizes that were given do not go with the preset that is chosen.
    """
    table = FOR_SMALL if len(corpus) < SMALL_CORPUS else FOR_LARGE
    known = {name: value for name, value in table.items() if name in recipe.choose}
    recipe = dataclasses.replace(recipe, **known)
    # What fits on the device is found later.
    tokens = table["batch_tokens"] if recipe.batch_tokens == AUTO else recipe.batch_tokens
    steps = len(task.batches(corpus, tokenizer, tokens, recipe.max_tokens)) * recipe.epochs
    if "warmup_steps" in recipe.choose:
        warmup = min(WARMUP_MOST, _warmup(steps))
        recipe = dataclasses.replace(recipe, warmup_steps=warmup)
    if "learning_rate_scale" in recipe.choose:
        sizes = tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size
        config = task.configuration(recipe, *sizes, tokenizer.is_shared)
        peak = (config.d_model * recipe.warmup_steps) ** -0.5
        recipe = dataclasses.replace(recipe, learning_rate_scale=round(min(1.0, PEAK / peak), 3))
    return dataclasses.replace(recipe, choose=())


def lines(recipe, what, steps, parameters):
    """What a training is about to do, in words.

    Args:
        recipe: a `Recipe`.
        what: how large the corpus is, in words.
        steps: of an epoch.
        parameters: of the model.

    Yields:
        Lines.
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
            f"the learning rate would rise until step {rises:,}, after the end: nothing much will "
            f"be learned; give --warmup-steps {_warmup(every)}, or more epochs"
        )


def _warmup(steps):
    """In how many of all steps the rate should rise."""
    return max(1, round(WARMUP_SHARE * steps))
