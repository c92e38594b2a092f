"""Draws the vectors of positions: as a map, and their dot products by distance."""

import numpy as np

from ..report.picture import pyplot
from ..report.picture_language import word
from ..report.picture_style import SIGNED, colour

# Positions whose dot products with all others are drawn, as shares of the length.
FROM = (0.0, 0.25, 0.5, 0.75)


def positions_figure(table, title="positions"):
    """Above: the vector of each position. Below: dot products of positions by their distance.

    For sinusoids, the dot product depends only on the distance (section 3.5 of the paper: the
    encoding k positions later is a linear function of the current one). For learned positions, it
    may depend on the positions too. `table` is float [L, D].
    """
    length, size = table.shape
    figure, (above, below) = pyplot().subplots(2, 1, figsize=(5.2, 7), layout="constrained")
    maximum = np.abs(table).max()
    image = above.imshow(table, cmap=SIGNED, vmin=-maximum, vmax=maximum, aspect="auto")
    above.set(xlabel=word("dimension, of {}", size), ylabel=word("position"))
    above.set_title(word("the vector of each position"))
    figure.colorbar(image, ax=above, label=word("value"))
    products = table @ table.T
    for n, share in enumerate(FROM):
        place = int(share * (length - 1))
        distance = np.arange(length) - place
        label = word("from position {}", place)
        below.plot(distance, products[place], color=colour(n), label=label)
    below.set(xlabel=word("distance"), ylabel=word("dot product"))
    below.set_title(word("how alike two positions are"))
    below.grid(alpha=0.3)
    below.legend()
    figure.suptitle(word(title))
    return figure
