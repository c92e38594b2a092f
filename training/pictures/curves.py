"""Draws the learning rate, the losses, and the score that chooses the model, over the epochs."""

from ..report.picture import pyplot
from ..report.picture_style import colour, mark


def curves_figure(history, figure, title):
    """A figure of three panels over the epochs, from the rows of `log.csv`.

    `figure` is the column that chooses the published model, `title` its name in words.
    """
    picture, panels = pyplot().subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    lines = [
        ("learning rate", [("learning_rate", "learning rate")]),
        ("loss, nats a token", [("loss", "training"), ("val_loss", "validation")]),
        (title, [(figure, title)]),
    ]
    for ax, (label, columns) in zip(panels, lines, strict=True):
        for n, (column, words) in enumerate(columns):
            rows = [row for row in history if column in row]
            epochs, values = ([row[name] for row in rows] for name in ("epoch", column))
            ax.plot(epochs, values, color=colour(n), marker=mark(n), markersize=4, label=words)
        ax.set(xlabel="epoch", ylabel=label)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.3)
        if len(columns) > 1:
            ax.legend(fontsize=8)
    return picture
