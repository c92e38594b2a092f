"""Draws the learning rate, the losses, and the score that chooses the model, by step or epoch."""

import numpy as np

from ..report.picture import pyplot
from ..report.picture_language import word
from ..report.picture_style import colour, mark

POINTS = 500  # of the schedule: so many at equal distances, and so many that get denser to step 1


def curves_figure(history, figure, title, schedule=None):
    """A figure of three panels, from the rows of `log.csv`: by step if every row has its step, else
    by epoch.

    Args:
        history: the rows.
        figure: the column that chooses the published model.
        title: its name in words.
        schedule: a function of the steps made so far, an array, that returns the learning rates.
            It shows what happens inside an epoch, such as a warm-up. From the epoch on in which
            the log has another rate, because a later session had other settings, the log is drawn.
    """
    by = "step" if history and all("step" in row for row in history) else "epoch"
    picture, panels = pyplot().subplots(1, 3, figsize=(12, 3.4), sharex=True, layout="constrained")
    lines = [
        ("learning rate", [("learning_rate", "learning rate")]),
        ("loss, nats a token", [("loss", "training"), ("val_loss", "validation")]),
        (title, [(figure, title)]),
    ]
    for ax, (label, columns) in zip(panels, lines, strict=True):
        for n, (column, words) in enumerate(columns):
            rows = [row for row in history if column in row]
            places, values = ([row[name] for row in rows] for name in (by, column))
            ax.plot(
                places, values, color=colour(n), marker=mark(n), markersize=4, label=word(words)
            )
        ax.set(xlabel=word(by), ylabel=word(label))
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.3)
        if len(columns) > 1:
            ax.legend(fontsize=8)
    if schedule is not None and by == "step":
        _draw_schedule(panels[0], schedule)
    return picture


def _draw_schedule(ax, schedule):
    """Draws the rates of all steps through the logged ones, as far as these agree."""
    (logged,) = ax.lines
    steps, rates = map(np.asarray, logged.get_data())
    agree = np.isclose(schedule(steps), rates, rtol=1e-3, atol=0)
    count = len(agree) if agree.all() else agree.argmin()
    if not count:
        return
    logged.set_linestyle("none")
    last = steps[count - 1]
    known = np.concatenate([np.linspace(0, last, POINTS), np.geomspace(1, last, POINTS)])
    known = np.unique(known.round())
    steps = np.concatenate([known, steps[count:]])
    rates = np.concatenate([schedule(known), rates[count:]])
    ax.plot(steps, rates, color=logged.get_color())
