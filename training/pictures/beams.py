"""Draws a beam search as a tree: the beams after each step, their scores, and those pruned."""

import math

from ..report.picture import pyplot
from ..report.picture_language import word
from ..report.picture_style import COLOURS

KEPT, CUT, BEST = COLOURS[0], "0.5", COLOURS[3]
MEANING = {BEST: "chosen", KEPT: "went on, or ended", CUT: "cut"}
STEPS = 4  # beside each other; the next ones are drawn below


def beams_figure(tree, title="beam search"):
    """Draws the `training.pictures.inside.Tree` of a search: one column per step, the best on top.

    Lines go from each hypothesis to its continuations. A hypothesis without one was pruned. The
    chosen hypothesis has its own colour. After every four steps the tree goes on below and
    repeats the last step.
    """
    steps, width = len(tree.pieces), len(tree.pieces[0])
    rows = -(-steps // STEPS)
    columns = min(steps, STEPS)
    shape = {"figsize": (0.9 + 0.95 * columns, 1.5 + rows * (0.3 + 0.45 * width))}
    figure, panels = pyplot().subplots(rows, 1, layout="constrained", squeeze=False, **shape)
    inks = _inks(tree)
    for row, ax in enumerate(panels[:, 0]):
        first = row * STEPS
        if first == 0:
            _write(ax, 0, 0, word("begin"), "black")
        for step in range(max(0, first - 1), min(first + STEPS, steps)):
            for beam in range(width):
                if (step, beam) in inks:
                    _draw_beam(ax, tree, step, beam, inks[step, beam], joined=step >= first)
        ax.set(xlim=(first - 0.5, first + columns + 0.6), ylim=(width - 0.4, -0.6))
        ax.set_xticks(range(first + 1, min(first + STEPS, steps) + 1))
        ax.set_yticks(range(width), range(1, width + 1))
        ax.set_ylabel(word("beam"))
    panels[0, 0].set_title(word(title), fontsize="large")
    ax.set_xlabel(word("step; below each piece its score"))
    handles = [
        pyplot().Line2D([], [], color=ink, label=word(label))
        for ink, label in MEANING.items()
        if ink in inks.values()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _inks(tree):
    """{(step, beam): its colour} of all hypotheses."""
    alive, inks = survivors(tree), {}
    for step, scores in enumerate(tree.scores):
        for beam, score in enumerate(scores):
            if tree.parents[step][beam] < 0 or not math.isfinite(score):
                continue
            best = tree.best[step : step + 1] == [beam]
            inks[step, beam] = BEST if best else KEPT if (step, beam) in alive else CUT
    return inks


def _draw_beam(ax, tree, step, beam, ink, joined):
    """Draws a hypothesis after a step; if `joined`, with the line from the step before."""
    if joined:
        before = (0, 0) if step == 0 else (step, tree.parents[step][beam])
        ends = [before[0] + 0.36, step + 0.64], [before[1], beam]
        ax.plot(*ends, color=ink, lw=2 if ink == BEST else 1, zorder=1)
    label = tree.pieces[step][beam] or "·"
    _write(ax, step + 1, beam, f"{label}\n{tree.scores[step][beam]:.2f}", ink)


def _write(ax, x, y, text, ink):
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    ax.text(x, y, text, color=ink, ha="center", va="center", parse_math=False, bbox=box)


def survivors(tree):
    """(step, beam) of the hypotheses of the last step and of all their ancestors."""
    last = len(tree.pieces) - 1
    alive = {(last, beam) for beam, parent in enumerate(tree.parents[last]) if parent >= 0}
    for step in range(last, 0, -1):
        alive |= {(step - 1, tree.parents[step][beam]) for n, beam in set(alive) if n == step}
    return alive
