"""Trains a model: a plain `compile` and `fit` for each epoch, which can be killed at any point.

Besides the best model, which `tfformer.run` describes, the run directory of a training has:

    prepared/                 settings, tokenizer and corpus: prepared once, complete or absent
    checkpoints/last.npz      the complete state for resume
    checkpoints/epoch-7.npz   the weights after an epoch, for averaging
    log.csv, curve.png, tensorboard/
    sessions.json             when, where and for how long it trained
    README.md                 the model card
"""

import contextlib
import dataclasses
from pathlib import Path

import keras
import tensorflow as tf

from tfformer import run
from tfformer.config import PAD
from tfformer.files import RunError, sweep
from tfformer.text.tokenizer import FILES

from ..preparation.initialisation import NO_RUNS
from ..preparation.prepare import PREPARED, read_settings
from ..recipe import plan
from ..report.card import CARD
from ..report.history import LOG, read_history, write_history
from ..report.progress import EpochProgress, Forecast, going_on, write_curve
from ..report.session import SESSIONS, Session
from ..step.largest_batch import MIN_STEPS, largest_batch_tokens, training_step
from .checkpoint import EpochWeights
from .selection import Selection
from .setup import Setup, make_folders, take_devices
from .signals import Signals
from .state import Keeper, State

CURVE = "curve.png"
# The files of a run directory that only a training writes; an evaluation may write others.
WRITTEN = (
    "checkpoints/*", f"{PREPARED}/*", "config.json", "weights-*", *FILES,
    LOG, CURVE, SESSIONS, CARD,
)  # fmt: skip


class Training:
    """A training in a run directory.

    A new directory is prepared from the recipe; an existing run is resumed with its prepared files,
    and only the settings of the recipe are used. `data` is the folder of the recipe's corpus,
    `runs` are other runs that the training takes something from.

    Attributes:
        setup: a `Setup`: the model, its batches, its validation.
        state: a `State`: the progress so far.

    Raises:
        RunError, CorpusError: the directory or the corpus cannot be used; raised before the first
            step.
        WorkerError: the chief of several workers could not start.
        ValueError: Keras runs on another backend than TensorFlow, or something that the strategy
            needs is missing.
    """

    def __init__(self, directory, recipe, data=None, runs=NO_RUNS):
        self.directory = Path(directory)
        self.recipe, self.strategy, self.console = take_devices(recipe)
        self.say = self.console.print
        with self.strategy.together():
            self.strategy.chief_first(
                lambda: make_folders(self.directory, self.recipe, data, self.say, runs)
            )
            # One seed for the initial weights and the generators of dropout. It is set after a
            # teacher has used random numbers, and before a tokenizer is created. Seeding clears
            # TensorFlow's kernels, and with them SentencePiece's models.
            keras.utils.set_random_seed(recipe.seed)
            if self.recipe.choose:
                # The settings chosen from the corpus are in the prepared files.
                stored = read_settings(self.directory, self.recipe)
                self.recipe = dataclasses.replace(stored, choose=())
            self.setup = setup = Setup(self.directory, self.recipe, self.strategy, self.say)
        self.task, self.model, self.batches = setup.task, setup.model, setup.batches
        self.state = State(self.directory, self.model, self.strategy, self.say)
        self.signals = Signals(self.strategy)
        self.forecast = Forecast(self.recipe.epochs, len(self.batches), self.say)
        self.epoch_weights = EpochWeights(self.directory / "checkpoints", recipe.average)
        self.selection = Selection(
            self.state, setup.validation, self.epoch_weights, setup.tokenizer, setup.search
        )

    def largest_batch(self):
        """The batch tokens for batch_tokens="auto". This object cannot train afterwards."""
        minimum = self.recipe.max_tokens
        # As in the last epoch: with R-Drop if the training ever uses it.
        self._set_r_drop(self.recipe.epochs - 1)
        _, longest = self.batches.shape(self.batches.buckets[-1])
        step = training_step(self.model, self.task, longest, self.batches.passes)
        maximum = self.batches.padded_tokens // MIN_STEPS
        found = largest_batch_tokens(step, minimum, max(minimum, maximum))
        self.say(f"batch_tokens: {found:,}, the most that fit")
        return found

    def resume(self):
        """Restores the last checkpoint. A run that was killed before its first one starts anew.

        Raises:
            RunError: the checkpoint is damaged, missing, or not the same for all workers.
            ValueError: the recipe has fewer epochs than the run has started.
        """
        if self.state.last.exists():
            with self.strategy.together():
                # The first step would create the variables of optimizer and metrics. Here a
                # batch that is not used for learning creates them.
                with self.strategy.scope():
                    self.model.test_on_batch(*self.task.uniform(1, 2, PAD))
                self.state.restore()
                self.strategy.spread_dropout(self.model)
        elif len(read_history(self.directory)) > 1:  # the first epoch is logged before it is saved
            raise RunError(f"{self.state.last} is missing, though {LOG} has epochs of a training")
        config = self.directory / "config.json"
        if self.state.progress["best"] and not config.is_file():
            raise RunError(f"{config} is missing, which has the best model so far")
        place = self.state.step()
        if self.strategy.any(place != self.strategy.chiefs(place)):
            raise RunError(
                f"the workers read different files {self.state.last}: --run must be a folder that "
                "all of them share"
            )
        ended, epochs = self.state.progress["epoch"], self.recipe.epochs
        if self.state.progress["batch"] and ended >= epochs:
            raise ValueError(
                f"epochs must be at least {ended + 1}, the epoch that the run is in, got {epochs}"
            )
        if place:
            self.say(going_on(self.state.progress, place, self.recipe.max_minutes))

    def run(self):
        """Trains to the end of the recipe; the best model is then in the run directory.

        Returns:
            The history, a dict for each epoch.

        Raises:
            Interrupted: by SIGINT or SIGTERM; the state is saved.
            Diverged: with the number of the step; the last good checkpoint stays.
        """
        recipe, state = self.recipe, self.state
        state.start()
        if self.strategy.is_chief:
            writer = tf.summary.create_file_writer(str(self.directory / "tensorboard"))
        else:
            writer = tf.summary.create_noop_writer()
        with (
            self.signals.noted(),
            self.strategy.together(),
            writer.as_default(),
            self._session() as state.session,
        ):
            if self.strategy.is_chief:  # temporary files of a killed training
                for name in WRITTEN:
                    sweep(self.directory / name)
            self.selection.update_search()
            what = f"{len(self.batches.corpus):,} {self.task.unit}s"
            if labels := getattr(self.selection.tokenizer.target, "labels", None):
                shown = [*labels[:5], "..."] if len(labels) > 5 else labels
                what += f", {len(labels):,} labels ({', '.join(shown)})"
            for line in plan.lines(recipe, what, len(self.batches), self.model.count_params()):
                self.say(line)
            # An epoch that has started is finished, whatever the time.
            while state.progress["epoch"] < recipe.epochs:
                if not state.progress["batch"] and (why := self._why_stop()):
                    self.say(f"no further epoch: {why}")
                    break
                row = self._train_epoch()
                self.signals.obey()
                last = row["epoch"] == recipe.epochs or self._out_of_time()
                if last or row["epoch"] % recipe.validate_every == 0:
                    row.update(self.selection.validate(row["epoch"]))
                self._finish_epoch(row)
                writer.flush()
                self.signals.obey()
            self._validate_last()
            self.selection.average()
        return state.progress["history"]

    def _session(self):
        """The `Session` that measures this session; None in a worker that is not the chief."""
        if not self.strategy.is_chief:
            return contextlib.nullcontext()
        strategy, dtype = self.strategy, self.model.dtype_policy.name
        return Session(
            self.directory, self.state.step(), strategy.replicas, strategy.several, dtype
        )

    def _why_stop(self):
        """The reason to stop, patience or time; "" if there is none."""
        since_best, patience = self.selection.since_best(), self.recipe.patience
        if since_best is None:
            return ""
        if patience and since_best >= patience:
            return f"{since_best} validations without a better model (--patience {patience})"
        if self._out_of_time():
            return f"the time is up (--max-minutes {self.recipe.max_minutes:g})"
        return ""

    def _out_of_time(self):
        minutes = self.recipe.max_minutes
        return bool(minutes) and self.strategy.chiefs(self.state.clock()) > 60 * minutes

    def _set_r_drop(self, epoch):
        """Switches R-Drop on or off: with it, a batch has its rows twice and the loss compares the
        two copies."""
        recipe, loss = self.recipe, self.model.loss
        weight = recipe.r_drop if epoch >= recipe.r_drop_from else 0.0
        if weight == loss.r_drop:
            return
        loss.r_drop = weight
        self.batches.passes = self.model.passes = 2 if weight else 1
        # The step was traced with the old weight.
        with self.strategy.scope():
            self.model.make_train_function(force=True)

    def _train_epoch(self):
        """Trains the rest of the epoch; returns its row for the log."""
        recipe, progress, epoch = self.recipe, self.state.progress, self.state.progress["epoch"]
        self._set_r_drop(epoch)
        first, batches = progress["batch"], len(self.batches)
        bar = EpochProgress(
            epoch + 1, recipe.epochs, batches, first, self.batches.tokens(epoch, first),
            self.task.figures, self.console, progress["fit"] if first else None,
        )  # fmt: skip
        keeper = Keeper(self.state, self.signals, bar, recipe.checkpoint_steps)
        if first < batches:
            with bar.shown():
                # The bar comes first: it stops at a NaN before the keeper could save it.
                self.model.fit(
                    self.strategy.dataset(self.batches, epoch, first),
                    steps_per_epoch=batches - first,
                    initial_epoch=epoch,
                    epochs=epoch + 1,
                    verbose=0,
                    shuffle=False,
                    callbacks=[bar, keeper, self.forecast],
                )
            # If it is killed after this point, the run resumes with the validation.
            self.state.save()
        return {"epoch": epoch + 1, "step": self.state.step(), **progress["fit"]}

    def _validate_last(self):
        """Validates the last epoch if it was not yet known to be the last when it ended."""
        row = self.state.progress["history"][-1]
        if self.task.figure not in row:
            row.update(self.selection.validate(row["epoch"]))
            self._write_epoch(row["epoch"])
            self.state.save()

    def _finish_epoch(self, row):
        """Logs the epoch, stores its weights, and moves on to the next."""
        progress = self.state.progress
        row["seconds"] = round(self.state.clock(), 1)
        for name, value in row.items():
            tf.summary.scalar(name, value, step=row["step"])
        progress["history"].append(row)
        line = (
            f"epoch {row['epoch']}/{self.recipe.epochs}: loss {row['loss']:.3f}, "
            f"accuracy {100 * row['accuracy']:.1f} %, {row['tokens_per_second']:,.0f} tokens/s"
        )
        if self.task.figure in row:
            line += f"; validation: {self.task.sentence(row)}"
        self.say(line)
        self._write_epoch(row["epoch"])
        progress["epoch"], progress["batch"] = row["epoch"], 0
        self.state.save()

    def _write_epoch(self, epoch):
        """Writes the curves so far, and the weights after the epoch for averaging."""
        if not self.strategy.is_chief:
            return
        history = self.state.progress["history"]
        write_history(self.directory, history)
        if self.state.progress["best"]:
            write_curve(self.directory / CURVE, history, self.task)
        self.epoch_weights.write(epoch, run.model_weights(self.model))
