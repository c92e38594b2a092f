"""What is trained: a Transformer, compiled with the recipe's optimizer, schedule and loss."""

from tfformer import run
from tfformer.config import TransformerConfig
from tfformer.loss import SmoothedCrossEntropy
from tfformer.metrics import Perplexity, TokenAccuracy
from tfformer.models.transformer import Transformer
from tfformer.schedule import WarmupSchedule
from training.prepare import read_init
from training.step.adam import Adam
from training.step.muon import Muon
from training.step.parallel import ParallelTransformer


def beginning(prepared, recipe, tokenizer):
    """The model's configuration, and the weights it begins with; None: random ones.

    Args:
        prepared: the folder of what a training was prepared with.
        recipe: a `Recipe`, which says how large the model is unless it begins with another run.
        tokenizer: the `Tokenizer` of that folder.
    """
    if (begun := read_init(prepared)) is not None:
        return begun
    changes = dict(recipe.model_changes)
    if not tokenizer.is_shared:
        # Two vocabularies have no matrix in common.
        changes.setdefault("tie_embeddings", "target")
    config = TransformerConfig.preset(
        recipe.preset,
        tokenizer.source_vocabulary_size,
        target_vocabulary_size=tokenizer.target_vocabulary_size,
        **changes,
    )
    return config, None


def compiled_model(config, weights, recipe, steps, simple=True, packed=False):
    """A `Transformer` that `fit` trains by the recipe.

    Args:
        config: a `TransformerConfig`.
        weights: what it begins with; None: random weights.
        recipe: a `Recipe`.
        steps: of an epoch.
        simple: one device computes a batch at once; otherwise it is a `ParallelTransformer`.
        packed: that one leaves padding out. (A simple one does with batches that are packed.)
    """
    if simple:
        model = Transformer(config, dtype=recipe.dtype)
    else:
        model = ParallelTransformer(
            config, recipe.accumulate, recipe.cores, packed=packed, dtype=recipe.dtype
        )
    if weights is not None:
        run.set_weights(model, weights)
    for part in recipe.frozen():
        for layer in part_of(model, part):
            layer.trainable = False
    model.compile(
        optimizer=_optimizer(model, recipe, steps),
        loss=SmoothedCrossEntropy(recipe.smoothing),
        metrics=[TokenAccuracy(), Perplexity()],
    )
    model.optimizer.build(model.trainable_variables)
    return model


def _optimizer(model, recipe, steps):
    """The paper's Adam (section 5.3), for everything or for all but the matrices.

    Its weight decay (Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization") is of
    matrices, embeddings included: a gain or bias of 0 is no simpler model.
    """
    options = {
        "learning_rate": _schedule(model.config.d_model, recipe, steps),
        "beta_1": 0.9,
        "beta_2": 0.98,
        "epsilon": 1e-9,
        "global_clipnorm": recipe.clip_norm or None,
        "weight_decay": recipe.weight_decay or None,
    }
    if recipe.optimizer == "muon":
        optimizer = Muon(
            num_heads=model.config.num_heads, compute_dtype=model.compute_dtype, **options
        )
    else:
        optimizer = Adam(**options)
    vectors = [variable for variable in model.trainable_variables if len(variable.shape) < 2]
    optimizer.exclude_from_weight_decay(var_list=vectors)
    return optimizer


def _schedule(d_model, recipe, steps):
    """The paper's learning rate, with the recipe's cool-down at the end of its epochs."""
    steps *= recipe.epochs
    return WarmupSchedule(
        d_model,
        recipe.warmup_steps,
        recipe.learning_rate_scale,
        total_steps=steps,
        cooldown_steps=round(recipe.cooldown * steps),
    )


def part_of(model, part):
    """The layers of a part of a `Transformer`, by its name in `Recipe.freeze`."""
    if part != "embeddings":
        return [getattr(model, part)]
    names = ("source_embedding", "target_embedding", "source_positions", "target_positions")
    layers = [getattr(model, name, None) for name in names]
    return [layer for layer in layers if layer is not None]
