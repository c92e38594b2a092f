"""Draws the vectors of positions: as a map, and their dot products by distance."""

import numpy as np

from ..report.picture import pyplot
from ..report.picture_style import SIGNED, colour

# Positions whose dot products with all others are drawn, as shares of the length.
FROM = (0.0, 0.25, 0.5, 0.75)


def positions_figure(table, title="positions"):
    """Left: the vector of each position. Right: dot products of positions by their distance.

    For sinusoids, the dot product depends only on the distance (section 3.5 of the paper: the
    encoding k positions later is a linear function of the current one). For learned positions, it
    may depend on the positions too. `table` is float [L, D].
    """
    length, size = table.shape
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(10, 4), layout="constrained")
    maximum = np.abs(table).max()
    image = left.imshow(table, cmap=SIGNED, vmin=-maximum, vmax=maximum, aspect="auto")
    left.set(xlabel=f"dimension, of {size}", ylabel="place", title="the vector of each place")
    figure.colorbar(image, ax=left, label="value")
    products = table @ table.T
    for n, share in enumerate(FROM):
        place = int(share * (length - 1))
        distance = np.arange(length) - place
        right.plot(distance, products[place], color=colour(n), label=f"from place {place}")
    right.set(xlabel="distance", ylabel="dot product", title="how alike two places are")
    right.grid(alpha=0.3)
    right.legend(fontsize=8)
    figure.suptitle(title)
    return figure
