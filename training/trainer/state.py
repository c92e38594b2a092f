"""Where a training stands: epoch, batch, clock and history, in memory and in a checkpoint."""

import time

import keras
import numpy as np

from training.report.card import update_card
from training.report.progress import Diverged
from training.trainer import checkpoint

LAST = "last.npz"


class State:
    """The place that a training has come to, and its saves.

    Args:
        directory: the run directory.
        model: the compiled model.
        strategy: a `Strategy`: all workers save together, the chief writes.
        say: called with what is wrong with the model card.

    Attributes:
        progress: what a checkpoint has beside the variables: "epoch" and "batch", those that have
            ended; "seconds"; "history", a dict an epoch; "best", the figure of the published model
            and where it is from, or None; inside an epoch "fit", what that has come to.
        session: the `Session` that is recorded with each save, or None.
    """

    def __init__(self, directory, model, strategy, say):
        self.directory, self.model, self.strategy, self.say = directory, model, strategy, say
        self.last = directory / "checkpoints" / LAST
        self.progress = {"epoch": 0, "batch": 0, "seconds": 0.0, "history": [], "best": None}
        self.session = None
        self.start()

    def start(self):
        """From here on the clock goes on from where the last save has left it."""
        self.started = time.monotonic() - self.progress["seconds"]

    def clock(self):
        """Seconds of training, of all its sessions."""
        return time.monotonic() - self.started

    def step(self):
        """The updates that the weights have had."""
        return int(np.asarray(self.model.optimizer.iterations))

    def restore(self):
        """Puts the last checkpoint back. Raises RunError if it is damaged."""
        self.progress = checkpoint.restore(self.last, self.model)

    def save(self):
        """Writes the checkpoint, what the session has cost, and the model card.

        Raises:
            Diverged: a weight is not finite; the checkpoint that was there stays.
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
    """Inside an epoch: counts batches, saves now and then, and obeys signals.

    Args:
        state: a `State`.
        signals: the `Signals` of this process.
        bar: the `EpochProgress` of the epoch, which comes before it in the list of callbacks.
        every: steps from one save to the next.
    """

    def __init__(self, state, signals, bar, every):
        super().__init__()
        self.state, self.signals, self.bar, self.every = state, signals, bar, every
        # `fit` resets the metrics when an epoch begins; one that goes on has some already.
        self.metrics = None
        if state.progress["batch"]:
            self.metrics = [v.numpy() for v in state.model.metrics_variables]

    def on_epoch_begin(self, epoch, logs=None):
        if self.metrics:
            for variable, value in zip(self.model.metrics_variables, self.metrics, strict=True):
                variable.assign(value)

    def on_train_batch_begin(self, batch, logs=None):
        # Workers have to stop after the same step, so a step tells them all.
        if self.signals.strategy.several and self.signals.number:
            self.model.stop.assign(1.0)

    def on_train_batch_end(self, batch, logs=None):
        progress = self.state.progress
        progress["batch"] += 1
        # A checkpoint after the last batch has to know what the epoch came to.
        progress["fit"] = self.bar.row()
        stop = logs["stop"] if self.signals.strategy.several else self.signals.number
        if stop or progress["batch"] % self.every == 0:
            self.state.save()
        if stop:
            self.signals.stop()
