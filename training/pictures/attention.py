"""Draws the attention of the heads: as heat-maps, and as lines between words."""

import numpy as np

from ..report.picture import pyplot
from ..report.picture_style import SHARES, at_axis, colour

LABEL = 7  # points: smaller labels cannot be read


def heads_figure(attention, queries, keys, title="", axes=("query", "key")):
    """A grid of heat-maps, with a row for each layer and a column for each head.

    Args:
        attention: float [N, H, T, S]. Each row sums to 1.
        queries, keys: names of the T and S pieces.
        axes: labels for the rows and the columns of a map.
    """
    layers, heads = attention.shape[:2]
    width, height = (_inches(len(pieces)) for pieces in (keys, queries))
    size = (1 + width * heads, 1 + height * layers)
    shape = {"figsize": size, "layout": "constrained", "squeeze": False}
    figure, panels = pyplot().subplots(layers, heads, **shape)
    for (layer, head), ax in np.ndenumerate(panels):
        image = ax.imshow(attention[layer, head], cmap=SHARES, vmin=0, vmax=1, aspect="auto")
        last, first = layer == layers - 1, head == 0
        at_axis(ax.xaxis, keys if last else None, size=LABEL)
        at_axis(ax.yaxis, queries if first else None, size=LABEL)
        ax.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=LABEL)
        if last:
            ax.set_xlabel(axes[1])
        if first:
            ax.set_ylabel(axes[0])
    figure.colorbar(image, ax=panels, shrink=0.6, label="share of the attention")
    figure.suptitle(title)
    return figure


def _inches(pieces):
    """The width or height of a map: at most 4 inches, unless its labels would overlap."""
    return max(min(4, 0.9 + 0.16 * pieces), 0.9 + 1.1 * LABEL / 72 * pieces)


def lines_figure(attention, queries, keys, title="", axes=("query", "key"), minimum=0.1):
    """Draws lines from each query to its keys, with a panel per layer and a colour per head.

    `minimum` is the minimum share of attention that gets a line. See `heads_figure`.
    """
    layers, heads = attention.shape[:2]
    height = 1.4 + 0.24 * max(len(queries), len(keys))
    shape = {"figsize": (3.2 * layers, height), "layout": "constrained", "squeeze": False}
    figure, panels = pyplot().subplots(1, layers, **shape)
    for layer, ax in enumerate(panels[0]):
        for head in range(heads):
            for t, s in zip(*(attention[layer, head] >= minimum).nonzero(), strict=True):
                # Summed shares of the bytes of a character may exceed 1 by rounding.
                share = min(1.0, float(attention[layer, head, t, s]))
                # Lines of several heads between the same two pieces are drawn side by side.
                aside = 0.5 * ((head + 0.5) / heads - 0.5)
                ax.plot([0, 1], [t + aside, s + aside], color=colour(head), alpha=share, lw=1.5)
        for place, pieces, side in ((0, queries, "right"), (1, keys, "left")):
            for n, piece in enumerate(pieces):
                ax.text(
                    place + (0.04 if place else -0.04), n, piece,
                    ha=side, va="center", fontsize=LABEL, parse_math=False,
                )  # fmt: skip
        longer = max(len(queries), len(keys))
        ax.set(xlim=(-0.7, 1.7), ylim=(longer, -1), title=f"layer {layer + 1}")
        ax.set_xticks([0, 1], axes)
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set_visible(False)
    handles = [
        pyplot().Line2D([], [], color=colour(head), label=f"head {head + 1}")
        for head in range(heads)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(heads, 8), fontsize=LABEL)
    figure.suptitle(title)
    return figure
