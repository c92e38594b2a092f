"""Draws a model's probabilities: of each piece, and distributions beside their targets."""

import numpy as np

from ..report.picture import grid, pyplot
from ..report.picture_language import word
from ..report.picture_style import COLOURS, at_axis

MAXIMUM = 10  # number of pieces drawn of a distribution
COLUMNS = 2


def tokens_figure(pieces, log_probs):
    """Draws the probability of each of T pieces of a translation, given those before it."""
    size = (max(3.6, 1.2 + 0.25 * len(pieces)), 3.4)
    figure, ax = pyplot().subplots(figsize=size, layout="constrained")
    ax.bar(range(len(pieces)), np.exp(log_probs), color=COLOURS[0])
    at_axis(ax.xaxis, pieces)
    ax.set(xlabel=word("piece of the translation"), ylabel=word("probability"), ylim=(0, 1.02))
    ax.set_title(word("log P of all of it: {:.2f}", log_probs.sum()))
    ax.grid(axis="y", alpha=0.3)
    return figure


def likeliest(labels, probs, maximum=MAXIMUM):
    """The ids to draw of each distribution, integers [T, n], the likeliest first.

    The label is always included. If it is not among the likeliest, it replaces the last one.
    `labels` are integers [T], `probs` float [T, V].
    """
    ids = np.argsort(-probs, axis=1)[:, :maximum]
    missing = ~(ids == labels[:, None]).any(axis=1)
    ids[missing, -1] = labels[missing]
    return ids


def distributions_figure(labels, probs, ids, names, smoothing, positions=None):
    """Draws the smoothed target and the model's distribution at each position.

    The smoothed target is (1 - e) at the label, plus e / V at every piece (section 5.4 of the
    paper). See `likeliest` for the ids to draw; `names` are those of their pieces, [T][n].
    `positions` are the indices of the positions to draw; default: all.
    """
    size = probs.shape[1]
    positions = range(len(probs)) if positions is None else positions
    rows = -(-len(positions) // COLUMNS)
    figure, panels = grid(len(positions), COLUMNS, (2.6 * COLUMNS, 0.6 + 2.3 * rows))
    for place, ax in zip(positions, panels, strict=True):
        of_label = ids[place] == labels[place]
        target = (1 - smoothing) * of_label + smoothing / size
        at = np.arange(len(of_label))
        ax.bar(at - 0.2, target, 0.4, color=COLOURS[1], label=word("target"))
        ax.bar(at + 0.2, probs[place, ids[place]], 0.4, color=COLOURS[0], label=word("learned"))
        at_axis(ax.xaxis, names[place])
        ax.set(ylim=(0, 1.02))
        (label,) = np.flatnonzero(of_label)
        ax.set_title(f"{place + 1}: {names[place][label]}", fontsize="medium", parse_math=False)
    for ax in panels[::COLUMNS]:
        ax.set_ylabel(word("probability"))
    handles, known = panels[0].get_legend_handles_labels()
    figure.legend(handles, known, loc="outside upper center", ncols=2)
    figure.supxlabel(word("piece"), fontsize="medium")
    return figure
