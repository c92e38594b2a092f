"""The progress of a training: epoch, batch, clock and history, in memory and in a checkpoint."""

import time

import keras
import numpy as np

from ..report.card import update_card
from ..report.progress import Diverged
from . import checkpoint

LAST = "last.npz"


class State:
    """The progress of a training, and its saves.

    Attributes:
        progress: the part of a checkpoint besides the variables: "epoch" and "batch", the numbers
            of finished ones; "seconds"; "history", a dict for each epoch; "best", the figure of the
            published model and its origin, or None; inside an epoch "fit", the results so far.
        session: the `Session` that is recorded with each save, or None.
    """

    def __init__(self, directory, model, strategy, say):
        self.directory, self.model, self.strategy, self.say = directory, model, strategy, say
        self.last = directory / "checkpoints" / LAST
        self.progress = {"epoch": 0, "batch": 0, "seconds": 0.0, "history": [], "best": None}
        self.session = None
        self.start()

    def start(self):
        """Continues the clock from the seconds in the last save."""
        self.started = time.monotonic() - self.progress["seconds"]

    def clock(self):
        """Seconds of training in all sessions."""
        return time.monotonic() - self.started

    def step(self):
        """The number of updates of the weights so far."""
        return int(np.asarray(self.model.optimizer.iterations))

    def restore(self):
        """Restores the last checkpoint. Raises RunError if it is damaged."""
        self.progress = checkpoint.restore(self.last, self.model)

    def save(self):
        """Writes the checkpoint, the record of the session, and the model card.

        If a weight is not finite, `Diverged` is raised, and the old checkpoint stays.
        """
        self.progress["seconds"] = self.clock()
        try:
            checkpoint.save(self.last, self.model, self.progress, self.strategy.is_chief)
        except checkpoint.NotFinite as error:
            raise Diverged(f"{error} at step {self.step()}") from error
        if self.session:
            self.session.record(self.step())
            update_card(self.directory, self.say)


class Keeper(keras.callbacks.Callback):
    """Counts batches inside an epoch, saves every so many steps, and stops on signals.

    In the list of callbacks it comes after `bar`, the `EpochProgress` of the epoch.
    """

    def __init__(self, state, signals, bar, every):
        super().__init__()
        self.state, self.signals, self.bar, self.every = state, signals, bar, every
        # `fit` resets the metrics at the start of an epoch; a resumed epoch already has some.
        self.metrics = None
        if state.progress["batch"]:
            self.metrics = [v.numpy() for v in state.model.metrics_variables]

    def on_epoch_begin(self, epoch, logs=None):
        if self.metrics:
            for variable, value in zip(self.model.metrics_variables, self.metrics, strict=True):
                variable.assign(value)

    def on_train_batch_begin(self, batch, logs=None):
        # Workers must stop after the same step, so a step passes the request to all.
        if self.signals.strategy.several and self.signals.number:
            self.model.stop.assign(1.0)

    def on_train_batch_end(self, batch, logs=None):
        progress = self.state.progress
        progress["batch"] += 1
        # A checkpoint after the last batch needs the results of the epoch.
        progress["fit"] = self.bar.row()
        stop = logs["stop"] if self.signals.strategy.several else self.signals.number
        if stop or progress["batch"] % self.every == 0:
            self.state.save()
        if stop:
            self.signals.stop()
