"""Checks a recipe. A broken rule raises a ValueError with the setting, the rule and the value.

A recipe is checked when it is created, so no other code checks it again.
"""

import math

from .families import TRANSLATION

AUTO = "auto"
PROFILES = ("none", "latency")
OPTIMIZERS = ("adam", "muon")
STRATEGIES = ("none", "mirrored", "multiworker", "tpu")
VOCABULARY_KINDS = ("unigram", "bpe", "char")
DTYPES = ("float32", "mixed_bfloat16", "mixed_float16", AUTO)
OBJECTIVES = ("cross-entropy", "kl", "squared")
DECAYS = ("linear", "exponential", "inverse-sigmoid")
REPLACEMENTS = ("argmax", "sampled", "mixed")
REWARDS = ("none", "minimum-risk", "self-critical")

# {minimum: settings without a maximum}, and (name, minimum, maximum) of the others.
MINIMUM = {
    1: "max_characters accumulate epochs warmup_steps validate_every average checkpoint_steps "
    "max_length_ratio",
    0: "cores patience seed max_minutes weight_decay clip_norm r_drop r_drop_from "
    "subword_sampling_from both_ways new_pieces guided_attention guided_heads",
}
BETWEEN = (
    ("max_tokens", 2, 1024),
    ("vocabulary_size", 261, 1_000_000),
    ("smoothing", 0, 0.99),
    ("subword_sampling", 0, 1),
    ("word_dropout", 0, 0.99),
    ("glancing", 0, 1),
    ("teacher_weight", 0, 1),
    ("beam_width", 1, 64),
    ("length_penalty", 0, 10),
    ("cooldown", 0, 1),
    ("scheduled_sampling", 0, 0.99),
    ("scheduled_sampling_passes", 2, 5),
    ("reward_samples", 2, 64),
)


def check(recipe):
    """Raises a ValueError if a recipe breaks a rule."""
    # Imported here because they import Keras and TensorFlow.
    from tfformer.config import PRESETS

    from ..tasks import TASKS

    words(recipe, TASKS, tuple(PRESETS))
    numbers(recipe)
    if recipe.profile != "none":
        if recipe.task != TRANSLATION:
            task = recipe.task
            raise ValueError(f"profile must be 'none' for the task {task}, got {recipe.profile!r}")
        if recipe.model_changes.get("share_halves"):
            raise ValueError(f"profile must be 'none' with share_halves, got {recipe.profile!r}")
    task, size = TASKS[recipe.task], recipe.vocabulary_size
    parts(recipe, task.parts)
    if recipe.subword_sampling and recipe.vocabulary_kind == "char":
        raise ValueError(
            "subword_sampling must be 0 with vocabulary_kind='char', where a text has only one "
            f"segmentation, got {recipe.subword_sampling}"
        )
    require_vocabulary(recipe, recipe.shared_vocabulary)
    search(recipe, task)
    config = task.configuration(recipe, size, shared=recipe.shared_vocabulary)
    require_positions(config, recipe.max_tokens)
    require_model(recipe, config)
    task.of(config).require_methods(recipe)
    batches(recipe)


def words(recipe, tasks, presets):
    """Checks the settings that must be one of a few words."""
    for name, allowed in (
        ("task", tuple(tasks)),
        ("preset", presets),
        ("profile", PROFILES),
        ("vocabulary_kind", VOCABULARY_KINDS),
        ("dtype", DTYPES),
        ("strategy", STRATEGIES),
        ("optimizer", OPTIMIZERS),
        ("objective", OBJECTIVES),
        ("scheduled_sampling_decay", DECAYS),
        ("scheduled_sampling_by", REPLACEMENTS),
        ("reward", REWARDS),
        ("class_weights", tasks[recipe.task].class_weights if recipe.task in tasks else ()),
    ):
        if getattr(recipe, name) not in allowed:
            shown = tuple(word for word in allowed if word != "test")  # the preset of the tests
            raise ValueError(f"{name} must be one of {shown}, got {getattr(recipe, name)!r}")


def numbers(recipe):
    """Checks the settings that are numbers."""
    for minimum, names in MINIMUM.items():
        for name in names.split():
            if not (value := getattr(recipe, name)) >= minimum:  # NaN is refused too
                raise ValueError(f"{name} must be at least {minimum}, got {value}")
            if value == math.inf and name != "max_length_ratio":
                raise ValueError(f"{name} must be finite, got inf")
    for name, minimum, maximum in BETWEEN:
        if not minimum <= (value := getattr(recipe, name)) <= maximum:
            raise ValueError(f"{name} must be in [{minimum}, {maximum}], got {value}")
    if not 0 < recipe.learning_rate_scale < math.inf:
        raise ValueError(
            f"learning_rate_scale must be positive and finite, got {recipe.learning_rate_scale}"
        )


def parts(recipe, parts):
    """Checks the frozen parts. `parts` are the parts of the task's model."""
    unknown = sorted(set(recipe.frozen()) - set(parts))
    if unknown or set(recipe.frozen()) == set(parts):
        raise ValueError(f"freeze must be some of {parts} but not all, got {recipe.freeze!r}")
    if recipe.new_pieces and "embeddings" in recipe.frozen():
        raise ValueError(
            "new_pieces must be 0 with freeze='embeddings', as they would not be learned, got "
            f"{recipe.new_pieces}"
        )


def search(recipe, task):
    """Checks the search options that the model is served with."""
    from tfformer.config.search_options import KEPT

    for name, value in recipe.search.items():
        if not task.searched:
            raise ValueError(
                f"search must be empty for the family {task.family}, which has no search, got "
                f"{name!r}"
            )
        if name not in task.searched:
            raise ValueError(
                f"search options of the family {task.family} must be of {sorted(task.searched)}, "
                f"got {name!r}"
            )
        KEPT[name].checked(value)
    if recipe.search.get("min_length", 0) > recipe.max_tokens:
        raise ValueError(
            f"min_length must be at most max_tokens={recipe.max_tokens}, got "
            f"{recipe.search['min_length']}"
        )


def batches(recipe):
    """Checks the size of a batch."""
    if recipe.batch_tokens == AUTO:
        if recipe.accumulate > 1 or recipe.cores > 1 or recipe.strategy != "none":
            raise ValueError(
                "batch_tokens must be a number if several devices or parts share a batch, got "
                f"{AUTO!r}"
            )
    elif not recipe.max_tokens <= recipe.batch_tokens < math.inf:
        raise ValueError(
            "batch_tokens must be at least max_tokens, so that each pair fits into a batch, "
            f"got batch_tokens={recipe.batch_tokens} and max_tokens={recipe.max_tokens}"
        )


def require_model(recipe, config):
    """Raises a ValueError if the recipe cannot train a model of this configuration, which may come
    from `--init`."""
    if config.normalization == "batch":
        # Each part of a batch would have its own statistics, and each device its own averages.
        for name, maximum in (("strategy", "none"), ("accumulate", 1), ("cores", 1)):
            value = getattr(recipe, name)
            if value != maximum and (name, value) != ("cores", 0):
                raise ValueError(
                    f"{name} must be {maximum!r} with normalization='batch', got {value!r}"
                )
    halves = sorted({"encoder", "decoder"} & set(recipe.frozen()))
    if getattr(config, "share_halves", False) and len(halves) == 1:
        raise ValueError(
            f"freeze must name both encoder and decoder, or none, with share_halves, got "
            f"{recipe.freeze!r}"
        )


def require_teachable(recipe):
    """Raises a ValueError if a recipe's model cannot learn from `--teachers`, which predict the
    next tokens of unchanged pairs."""
    from ..tasks import TASKS

    task = TASKS[recipe.task]
    if not task.taught:
        raise ValueError(
            f"--teachers need --family transformer or recurrent, got the family {task.family}"
        )
    if recipe.teacher_weight == 1 and recipe.r_drop:
        raise ValueError(f"r_drop must be 0 with teacher_weight=1, got {recipe.r_drop}")
    for name, off in (("both_ways", 0), ("scheduled_sampling", 0), ("reward", "none")):
        if (value := getattr(recipe, name)) != off:
            raise ValueError(f"{name} must be {off} with --teachers, got {value}")


def require_vocabulary(recipe, is_shared):
    """Raises a ValueError if the vocabulary, perhaps that of `--init`, rules out `both_ways`."""
    if recipe.both_ways and not is_shared:
        raise ValueError(
            "both_ways must be 0 without a shared vocabulary, as each language becomes source "
            f"and target, got {recipe.both_ways}"
        )


def require_positions(config, max_tokens):
    """Raises a ValueError if a model has fewer positions than `max_tokens`."""
    if config.longest < max_tokens:
        raise ValueError(
            f"max_tokens must be at most the model's max_positions={config.longest}, got "
            f"{max_tokens}"
        )
