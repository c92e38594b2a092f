"""Shows the progress of a training: a bar for each epoch, and the training curve."""

import contextlib
import math
import time

import keras
import numpy as np

from tfformer.terminal.progress_bar import Bar

from ..methods.method import Noted


class Diverged(ArithmeticError):
    """The loss or a weight is NaN or infinite."""


class EpochProgress(keras.callbacks.Callback):
    """A bar with loss, accuracy, learning rate and tokens per second. Stops if the loss is NaN.

    Of the `batches` of the epoch, `first` were done before, with the result `before` of `row`.
    `tokens` are the numbers of real tokens of the others. `figures_of` is a function of the logs
    that returns "loss" and "accuracy" for `row`.
    """

    def __init__(self, epoch, epochs, batches, first, tokens, figures_of, output, before=None):
        super().__init__()
        self.tokens, self.done, self.figures_of = tokens, first, figures_of
        self.seen, self.seconds, self.logs = 0, 0.0, {}
        if before and "tokens" in before:
            self.seen = before["tokens"]
            self.seconds = self.seen / before["tokens_per_second"]
        # A log file only gets the line at the end of the epoch.
        self.bar = Bar(f"epoch {epoch}/{epochs}", batches, first, output=output)

    @contextlib.contextmanager
    def shown(self):
        """Shows the bar on the terminal inside this block, and removes it afterwards."""
        self.started = time.monotonic() - self.seconds
        with self.bar:
            yield

    def on_train_batch_end(self, batch, logs=None):
        self.logs = {name: float(value) for name, value in logs.items()}
        self.seen += next(self.tokens)
        self.done += 1
        if not math.isfinite(self.logs["loss"]):
            raise Diverged(f"the loss is {self.logs['loss']} at step {self.step()}")
        if self.bar.shown:
            self.bar.to(self.done, self.figures())

    def step(self):
        return int(np.asarray(self.model.optimizer.iterations))

    def tokens_per_second(self):
        return self.seen / max(time.monotonic() - self.started, 1e-9)

    def learning_rate(self):
        return float(np.asarray(self.model.optimizer.learning_rate))

    def row(self):
        """The row for the log: the epoch's results so far."""
        noted = [metric.name for metric in self.model.metrics if isinstance(metric, Noted)]
        return {
            **self.figures_of(self.logs),
            **{name: self.logs[name] for name in noted},
            "learning_rate": self.learning_rate(),
            "tokens": self.seen,
            "tokens_per_second": self.tokens_per_second(),
        }

    def figures(self):
        """Loss, accuracy, speed and learning rate as texts."""
        return (
            f"loss {self.logs['loss']:.3f}",
            f"accuracy {100 * self.logs['accuracy']:.1f} %",
            f"{self.tokens_per_second():,.0f} tokens/s",
            f"lr {self.learning_rate():.2e}",
        )


class Forecast(keras.callbacks.Callback):
    """Says once, after the first 50 steps, how long an epoch of `steps` steps and the rest will
    take."""

    STEPS = 50

    def __init__(self, epochs, steps, say):
        super().__init__()
        self.epochs, self.steps, self.say = epochs, steps, say
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        if len(self.ends) == self.STEPS:
            return
        self.ends.append(time.monotonic())
        if len(self.ends) == self.STEPS:
            # The first step of each length is mostly tracing. The median ignores these steps.
            step = float(np.median(np.diff(self.ends)))
            done = int(np.asarray(self.model.optimizer.iterations))
            rest = max(0, self.epochs * self.steps - done)
            self.say(
                f"an epoch takes about {duration(step * self.steps)}, the rest "
                f"{duration(step * rest)}, without the validations"
            )


def duration(seconds):
    """A duration in words: 40 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def shortened(text, maximum=100):
    """A text for one line of the screen: at most this many characters, and "…" if it is cut."""
    return text if len(text) <= maximum else f"{text[: maximum - 1].rstrip()}…"


def going_on(progress, step, max_minutes=0):
    """One line about where a resumed training goes on, and how much of its time is used.

    Args:
        progress: the `progress` of its `State`.
        step: the number of steps made before.
        max_minutes: the limit for all sessions together; 0 is no limit.
    """
    ended, minutes = progress["epoch"], f"{progress['seconds'] / 60:.1f}"
    place = f"in epoch {ended + 1}, after" if progress["batch"] else f"after epoch {ended},"
    line = f"goes on {place} step {step:,}, {minutes} minutes"
    if max_minutes:
        line += f"; of {max_minutes:g} minutes (--max-minutes), {minutes} are used"
    return line


def write_curve(path, rows, task):
    """Draws the training curve over epochs: losses on the left, the task's score on the right."""
    from .picture import pyplot, write_picture

    def line(axes, name, **style):
        known = [row for row in rows if name in row]
        axes.plot([row["epoch"] for row in known], [row[name] for row in known], ms=3, **style)

    figure, axes = pyplot().subplots(figsize=(7, 4), layout="constrained")
    line(axes, "loss", marker="o", label="training loss")
    line(axes, "val_loss", marker="s", label="validation loss")
    axes.set(xlabel="epoch", ylabel="nats a token", title=f"Loss and {task.figure_name} by epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    right, scores = axes.twinx(), [row[task.figure] for row in rows if task.figure in row]
    label = f"validation {task.figure_words()}"
    line(right, task.figure, color="tab:green", marker="^", label=label)
    # A little above the maximum, so that the axis cuts no marker.
    maximum = 1.03 * task.figure_max if max(scores) > 0.6 * task.figure_max else None
    right.set(ylabel=task.figure_name, ylim=(0, maximum))
    lines = axes.get_lines() + right.get_lines()
    labels = [line.get_label() for line in lines]
    figure.legend(lines, labels, loc="outside lower center", ncols=len(lines))
    write_picture(path, figure)
