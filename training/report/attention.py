"""Draws the attention to the source, and the gate of a model that copies."""

from .picture import pyplot
from .picture_style import SHARES, at_axis


def attention_figure(attention, source, target, gate=None):
    """A figure with a row for each target piece and a column for each source piece: [T, S].

    `gate`, [T], is drawn as a separate column for a model that copies: the probability that a
    piece was generated.
    """
    size = [2 + 0.35 * len(source), 2 + 0.35 * len(target)]
    panels = [(attention, source, SHARES, "source")]
    title = "attention to the source\n(last layer, mean over the heads)"
    if gate is not None:
        size[0] += 2
        panels.append((gate[:, None], ["generated"], "Oranges", ""))
        title = "attention to the source, by which it copies\n(last layer, mean over the heads)"
    shape = {"figsize": size, "layout": "constrained", "squeeze": False}
    widths = [len(columns) for _, columns, *_ in panels]
    figure, axes = pyplot().subplots(1, len(panels), width_ratios=widths, **shape)
    for ax, (numbers, columns, colours, label) in zip(axes[0], panels, strict=True):
        image = ax.imshow(numbers, cmap=colours, vmin=0, vmax=1)
        at_axis(ax.xaxis, columns)
        at_axis(ax.yaxis, target)
        ax.set_xlabel(label)
        figure.colorbar(image, shrink=0.8)
    axes[0, 0].set_ylabel("target")
    axes[0, 0].set_title(title, fontsize="medium")
    if gate is not None:
        # A piece that is not generated is copied.
        axes[0, 1].set_title("gate", fontsize="medium")
    return figure
