"""Builds the model of a task and compiles it with the recipe's optimizer, schedule and loss."""

from tfformer import run
from tfformer.models import ENCODER_DECODER, FAMILIES
from tfformer.schedule import WarmupSchedule

from ..methods.teachers import Teachers
from .adam import Adam
from .muon import Muon
from .muon_matrices import matrices_of
from .parallel import in_parts


def compiled_model(
    begun, task, recipe, steps, simple=True, packed=False, corpus=None, tokenizer=None, teachers=()
):
    """The task's compiled model, which `fit` trains with the settings of the recipe.

    Args:
        begun: a `Beginning`.
        steps: steps in an epoch.
        simple: whether one device computes a whole batch at once; otherwise the model's class is
            that of `in_parts`.
        packed: whether a model in parts leaves padding out. (A simple model does so if its batches
            are packed.)
        corpus, tokenizer: for a loss or a method that depends on them.
        teachers: an iterable of `Beginning`s; only for a model that is not simple.
    """
    methods = task.methods(recipe, steps * recipe.epochs, tokenizer)
    kind = FAMILIES[task.family].model
    if simple:
        model = kind(begun.config, dtype=recipe.dtype)
    else:
        model = in_parts(kind)(
            begun.config,
            parts=recipe.accumulate,
            cores=recipe.cores,
            without_padding=task.without_padding if packed else None,
            methods=methods,
            dtype=recipe.dtype,
        )
    # Built after the student, so that the student's initial weights do not depend on teachers.
    models = []
    for teacher in teachers:
        models.append(FAMILIES[ENCODER_DECODER].model(teacher.config, dtype=recipe.dtype))
        run.set_weights(models[-1], teacher.weights)
    if models:
        model.methods = methods._replace(lesson=Teachers(models, recipe.teacher_weight))
    if begun.weights is not None:
        run.set_weights(model, begun.weights, begun.partly)
    for part in recipe.frozen():
        for layer in part_of(model, part):
            layer.trainable = False
    model.compile(
        optimizer=_optimizer(model, recipe, steps),
        loss=task.loss(recipe, corpus),
        metrics=task.metrics(recipe),
    )
    model.optimizer.build(model.trainable_variables)
    return model


def schedule_of(recipe, d_model, steps):
    """The paper's learning rate, with the recipe's cool-down at the end of its epochs of `steps`
    steps."""
    steps *= recipe.epochs
    return WarmupSchedule(
        d_model, recipe.warmup_steps, recipe.learning_rate_scale, total_steps=steps,
        cooldown_steps=round(recipe.cooldown * steps), rises=recipe.warmup,
    )  # fmt: skip


def _optimizer(model, recipe, steps):
    """The paper's Adam (section 5.3), or Muon for the matrices and Adam for everything else.

    Weight decay (Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization") applies to
    matrices, including embeddings: a gain or bias of 0 does not make a model simpler.
    """
    options = {
        "learning_rate": schedule_of(recipe, model.config.d_model, steps),
        "beta_1": 0.9,
        "beta_2": 0.98,
        "epsilon": 1e-9,
        "global_clipnorm": recipe.clip_norm or None,
        "weight_decay": recipe.weight_decay or None,
    }
    if recipe.optimizer == "muon":
        optimizer = Muon(matrices=matrices_of(model), compute_dtype=model.compute_dtype, **options)
    else:
        optimizer = Adam(**options)
    # (A recurrent unit has two biases in one variable, [2, 3 D].)
    vectors = [v for v in model.trainable_variables if len(v.shape) < 2 or v.name == "bias"]
    optimizer.exclude_from_weight_decay(var_list=vectors)
    return optimizer


def part_of(model, part):
    """The layers of a part of a model, by its name in `Recipe.freeze`."""
    parts = model.parts()
    if part not in parts:
        raise ValueError(f"freeze must name parts that the model has, {list(parts)}, got {part!r}")
    return parts[part]
