"""Draws the attention of the heads: as heat-maps, and as lines between words."""

from ..report.picture import grid, pyplot
from ..report.picture_language import word
from ..report.picture_style import SHARES, at_axis, colour

LABEL = 10  # points: readable on a phone, if the picture is about 5 inches wide
PITCH = 1.1 * LABEL / 72  # inches from one label to the next
LETTER = 0.6 * LABEL / 72  # inches: the width of a letter
COLUMNS = 2


def heads_figure(attention, queries, keys, title="", axes=("query", "key")):
    """A heat-map for each head, two beside each other, layer by layer.

    Args:
        attention: float [N, H, T, S]. Each row sums to 1.
        queries, keys: names of the T and S pieces.
        axes: labels for the rows and the columns of a map.
    """
    layers, heads = attention.shape[:2]
    columns = min(COLUMNS, heads)
    rows = -(-heads // columns)  # of each layer
    cell = max(PITCH, 1.5 / max(len(queries), len(keys)))
    left, below = (0.5 + LETTER * max(map(len, pieces)) for pieces in (queries, keys))
    size = (
        left + columns * (0.1 + max(1.4, cell * len(keys))),
        below + layers * rows * (0.35 + cell * len(queries)) + 1.1,
    )
    shape = {"figsize": size, "layout": "constrained", "squeeze": False}
    figure, panels = pyplot().subplots(layers * rows, columns, **shape)
    for n, ax in enumerate(panels.flat):
        layer, head = divmod(n, rows * columns)
        if head >= heads:
            ax.remove()
            continue
        image = ax.imshow(attention[layer, head], cmap=SHARES, vmin=0, vmax=1, aspect="auto")
        # The last map of its column, and the first of its row.
        last = layer == layers - 1 and head + columns >= heads
        first = head % columns == 0
        at_axis(ax.xaxis, keys if last else None, size=LABEL)
        at_axis(ax.yaxis, queries if first else None, size=LABEL)
        name = word("layer {}, head {}", layer + 1, head + 1)
        if layers == 1:
            name = word("head {}", head + 1)
        ax.set_title(name, fontsize=LABEL)
        if last:
            ax.set_xlabel(word(axes[1]))
        if first:
            ax.set_ylabel(word(axes[0]))
    style = {"location": "bottom", "aspect": 30, "pad": 0.1 / size[1]}
    figure.colorbar(image, ax=list(figure.axes), label=word("share of the attention"), **style)
    figure.suptitle(word(title))
    return figure


def lines_figure(attention, queries, keys, title="", axes=("query", "key"), minimum=0.1):
    """Draws lines from each query to its keys: a panel for each layer, a colour for each head.

    `minimum` is the minimum share of attention that gets a line. See `heads_figure`.
    """
    layers, heads = attention.shape[:2]
    columns = min(COLUMNS, layers)
    rows = -(-layers // columns)
    size = (2.6 * columns, 0.9 + rows * (0.7 + 0.24 * max(len(queries), len(keys))))
    figure, panels = grid(layers, columns, size)
    for layer, ax in enumerate(panels):
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
        ax.set(xlim=(-1.1, 2.1), ylim=(longer, -1), title=word("layer {}", layer + 1))
        ax.set_xticks([0, 1], list(map(word, axes)))
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set_visible(False)
    handles = [
        pyplot().Line2D([], [], color=colour(head), label=word("head {}", head + 1))
        for head in range(heads)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(heads, 4))
    figure.suptitle(word(title))
    return figure
