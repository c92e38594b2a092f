"""Draws the attention masks of the encoder, the decoder and the cross-attention."""

import numpy as np

from ..report.picture import grid
from ..report.picture_language import word
from ..report.picture_style import SHARES, at_axis
from .attention import LABEL, LETTER, PITCH


def masks_figure(source, read, source_mask, read_mask):
    """A map for each mask, dark where a query (a row) may attend to a key (a column).

    `source` and `read` are labels of the S source positions and of the T positions that the decoder
    reads, bos first, with padding. The masks are boolean [S] and [T], True = token.
    """
    count = len(read)
    causal = np.tril(np.ones((count, count), bool))
    maps = [
        ("encoder: padding", np.tile(source_mask, (len(source), 1)), source, source),
        ("decoder: padding", np.tile(read_mask, (count, 1)), read, read),
        ("decoder: the future", causal, read, read),
        ("decoder: both", causal & read_mask, read, read),
        ("cross-attention: padding", np.tile(source_mask, (count, 1)), read, source),
    ]
    longest = max(map(len, [*source, *read]))
    side = 0.6 + LETTER * longest + max(1.4, PITCH * max(len(source), count))
    columns = 2 if side < 2.9 else 1
    rows = -(-len(maps) // columns)
    figure, panels = grid(len(maps), columns, (columns * side, rows * side))
    for ax, (title, mask, queries, keys) in zip(panels, maps, strict=True):
        ax.imshow(mask, cmap=SHARES, vmin=0, vmax=1.4)
        at_axis(ax.xaxis, keys, size=LABEL)
        at_axis(ax.yaxis, queries, size=LABEL)
        ax.set(xlabel=word("key"), ylabel=word("query"))
        ax.set_title(word(title), fontsize=LABEL)
        ax.set_xticks(np.arange(len(keys) + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(len(queries) + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1)
        ax.tick_params(which="minor", length=0)
    return figure
