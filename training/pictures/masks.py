"""Draws the attention masks of the encoder, the decoder and the cross-attention."""

import numpy as np

from ..report.picture import pyplot
from ..report.picture_style import SHARES, at_axis


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
    shape = {"figsize": (3.2 * len(maps), 3.6), "layout": "constrained"}
    figure, panels = pyplot().subplots(1, len(maps), **shape)
    for ax, (title, mask, queries, keys) in zip(panels, maps, strict=True):
        ax.imshow(mask, cmap=SHARES, vmin=0, vmax=1.4)
        at_axis(ax.xaxis, keys, size=7)
        at_axis(ax.yaxis, queries, size=7)
        ax.set(xlabel="key", ylabel="query", title=title)
        ax.set_xticks(np.arange(len(keys) + 1) - 0.5, minor=True)
        ax.set_yticks(np.arange(len(queries) + 1) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1)
        ax.tick_params(which="minor", length=0)
    return figure
