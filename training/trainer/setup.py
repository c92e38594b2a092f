"""Sets up a training before its first step: devices, folders, corpus, model, validation."""

import dataclasses

import keras

from tfformer.files import RunError
from tfformer.terminal.progress_bar import console

from ..data.noise import Noise
from ..preparation.initialisation import beginning
from ..preparation.prepare import PREPARED, prepare, read_tokenizer, require_undamaged
from ..preparation.teachers import has_teachers, read_teachers
from ..recipe.rules import AUTO, require_model, require_teachable, require_vocabulary
from ..step import machine
from ..step.allocator import keep_freed_memory
from ..step.cores import cores_of, keep_operations_apart, share_threads
from ..step.largest_batch import has_gpu
from ..step.model import compiled_model
from ..step.strategy import Strategy
from ..tasks import TASKS
from ..tasks.task import require_defaults
from .state import LAST
from .validation import Validation


def take_devices(recipe):
    """Returns the recipe with its number of parts, the `Strategy`, and the console, which only
    prints in the chief.

    Call it before TensorFlow computes anything: only then can threads be shared and workers joined.
    If something that the recipe needs is missing, ValueError is raised.
    """
    if (backend := keras.backend.backend()) != "tensorflow":
        raise ValueError(
            f"tfformer train needs KERAS_BACKEND=tensorflow, got {backend}: with another "
            "backend train by the model's own fit"
        )
    if recipe.batch_tokens == AUTO and not has_gpu():
        raise ValueError(
            f"batch_tokens={AUTO} fills the memory of a GPU, and there is none: give a number"
        )
    recipe = dataclasses.replace(recipe, cores=cores_of(recipe))
    in_time = recipe.cores == 1 or share_threads(recipe.cores)
    if recipe.strategy != "tpu" and not has_gpu():
        keep_operations_apart()
    strategy = Strategy(recipe.strategy)
    output = console(quiet=not strategy.is_chief)
    if not in_time:
        output.print("TensorFlow was at work before and keeps its threads: it will take longer")
    return recipe, strategy, output


def make_folders(directory, recipe, data, say, runs):
    """Creates the folders of a run and all prepared files; one worker does this for all."""
    prepared, checkpoints = directory / PREPARED, directory / "checkpoints"
    if not prepared.is_dir():
        if (directory / "config.json").exists() or (checkpoints / LAST).exists():
            raise RunError(
                f"{directory} has a model but no folder {PREPARED}, so its training cannot go on: "
                "choose another run directory"
            )
        prepare(prepared, recipe, data, say, runs)
    else:
        require_undamaged(prepared)
    checkpoints.mkdir(exist_ok=True)


class Setup:
    """Everything that the first step needs, for a run whose folders exist.

    Attributes:
        task: the recipe's `Task`.
        taught: whether it uses teachers.
        batches: those of the training corpus.
        model: compiled, with its initial weights.
        search: keyword arguments of the model's service.
        validation: a `Validation`.
    """

    def __init__(self, directory, recipe, strategy, say):
        self.recipe, self.strategy, task = recipe, strategy, TASKS[recipe.task]
        prepared = directory / PREPARED
        self.tokenizer = read_tokenizer(prepared)
        begun = beginning(prepared, task, recipe, self.tokenizer)
        self.taught = has_teachers(prepared)
        self.task = task.of(begun.config)
        require_model(recipe, begun.config)
        self.task.require_methods(recipe)
        if self.taught:
            require_teachable(recipe)
        else:
            require_defaults(self.task, recipe, ["teacher_weight"], "without --teachers")
        require_vocabulary(recipe, self.tokenizer.is_shared)
        train, val = (self.task.corpus(prepared / split) for split in ("train", "val"))
        keep_freed_memory()
        tokens = recipe.max_tokens if recipe.batch_tokens == AUTO else recipe.batch_tokens
        self.batches = self._batches(train, tokens)
        self.model = self._model(begun, say, read_teachers(prepared))
        strategy.spread_dropout(self.model)
        self.search = self.task.search(recipe)
        # Validation does not split a batch: the parts that training computes one after another are
        # separate batches here. They are packed unless a GPU compiles the step.
        self.validation = Validation(
            self.task,
            val,
            self.model,
            self.tokenizer,
            self.task.served(self.model, self.tokenizer, self.search),
            strategy,
            tokens // recipe.accumulate,
            recipe.max_tokens,
            packed=self.task.without_padding is not None and strategy.is_none and not has_gpu(),
        )

    def _batches(self, corpus, tokens):
        recipe = self.recipe
        noise = Noise(
            self.tokenizer,
            recipe.subword_sampling,
            recipe.word_dropout,
            sampling_from=recipe.subword_sampling_from,
        )
        linked = bool(recipe.guided_attention) and corpus.has_links
        if linked and recipe.reward != "none":
            raise ValueError(f"reward must be 'none' with alignments, got {recipe.reward!r}")
        return self.task.batches(
            corpus,
            self.tokenizer,
            tokens,
            recipe.max_tokens,
            seed=recipe.seed,
            parts=recipe.accumulate * recipe.cores,
            # A compiled step needs few shapes; a step in parts splits its rows before it packs.
            packed=self._packs() and self._is_simple(),
            noise=noise,
            both_ways=recipe.both_ways,
            **({"linked": True} if linked else {}),
        )

    def _model(self, begun, say, teachers):
        recipe, dtype = self.recipe, self.recipe.dtype
        if dtype == AUTO:
            slow = self.strategy.any(not machine.has_bfloat16())
            dtype = "float32" if slow else "mixed_bfloat16"
            say(f"dtype: {dtype}")
        with self.strategy.scope():
            return compiled_model(
                begun,
                self.task,
                dataclasses.replace(recipe, dtype=dtype),
                steps=len(self.batches),
                simple=self._is_simple(),
                packed=self._packs(),
                corpus=self.batches.corpus,
                tokenizer=self.tokenizer,
                teachers=teachers,
            )

    def _is_simple(self):
        """Whether one device computes a whole batch in one pass, without methods or teachers."""
        one = self.recipe.accumulate == self.recipe.cores == 1
        methods = self.task.methods(self.recipe, tokenizer=self.tokenizer)
        return self.strategy.is_none and one and not (any(methods) or self.taught)

    def _packs(self):
        """Whether padding is left out: only if no compiler needs few shapes.

        Keras compiles with XLA on one GPU, and everything on a TPU.
        """
        compiled = self.recipe.strategy == "tpu" or (self._is_simple() and has_gpu())
        return self.task.without_padding is not None and not compiled
