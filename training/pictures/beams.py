"""Draws a beam search as a tree: the beams after each step, their scores, and those pruned."""

import math

from ..report.picture import pyplot
from ..report.picture_style import COLOURS

KEPT, CUT, BEST = COLOURS[0], "0.65", COLOURS[3]


def beams_figure(tree, title="beam search"):
    """Draws the `training.pictures.inside.Tree` of a search: one column per step, the best on top.

    Lines go from each hypothesis to its continuations. A hypothesis without one was pruned. The
    chosen hypothesis has its own colour.
    """
    steps, width = len(tree.pieces), len(tree.pieces[0])
    size = (1.5 + 1.15 * steps, 1.6 + 0.62 * width)
    figure, ax = pyplot().subplots(figsize=size, layout="constrained")
    alive = survivors(tree)
    for step in range(steps):
        for beam in range(width):
            parent, score = tree.parents[step][beam], tree.scores[step][beam]
            if parent < 0 or not math.isfinite(score):
                continue
            best = tree.best[step : step + 1] == [beam]
            ink = BEST if best else KEPT if (step, beam) in alive else CUT
            before = (0, 0) if step == 0 else (step, parent)
            ax.plot(
                [before[0] + 0.36, step + 0.64], [before[1], beam],
                color=ink, lw=2 if best else 1, zorder=1,
            )  # fmt: skip
            label = tree.pieces[step][beam] or "·"
            ax.text(
                step + 1, beam, f"{label}\n{score:.2f}", color=ink, ha="center", va="center",
                fontsize=8, parse_math=False,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )  # fmt: skip
    ax.text(0, 0, "begin", ha="center", va="center", fontsize=8)
    ax.set(xlim=(-0.5, steps + 0.6), ylim=(width - 0.4, -0.6), title=title)
    ax.set(xlabel="step", ylabel="beam, the best first", xticks=range(1, steps + 1))
    ax.set_yticks(range(width), range(1, width + 1))
    handles = [
        pyplot().Line2D([], [], color=ink, label=label)
        for ink, label in ((BEST, "chosen"), (KEPT, "went on, or ended"), (CUT, "cut"))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def survivors(tree):
    """(step, beam) of the hypotheses of the last step and of all their ancestors."""
    last = len(tree.pieces) - 1
    alive = {(last, beam) for beam, parent in enumerate(tree.parents[last]) if parent >= 0}
    for step in range(last, 0, -1):
        alive |= {(step - 1, tree.parents[step][beam]) for n, beam in set(alive) if n == step}
    return alive
