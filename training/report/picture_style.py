"""The common style of all pictures: colours, markers, and labels on an axis."""

# Colours for colour-blind readers too (Okabe and Ito 2008), and markers where colours are missing.
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#000000", "#999933",
)  # fmt: skip
MARKS = "os^DvP*X"
# Colour maps: from white to dark for shares from 0 to 1; with white at 0 for signed values.
SHARES, SIGNED = "Blues", "PuOr"


def colour(number):
    """The colour of the n-th line, from 0. After the last colour they repeat."""
    return COLOURS[number % len(COLOURS)]


def mark(number):
    """The marker of the n-th line, from 0."""
    return MARKS[number % len(MARKS)]


def at_axis(axis, pieces=None, size=None):
    """Labels the positions of an axis with pieces. None: no labels."""
    if pieces is None:
        axis.set_ticks([])
        return
    turned = {"rotation": 90} if axis.axis_name == "x" else {}
    # A dollar sign is a piece, not the start of a formula.
    axis.set_ticks(range(len(pieces)), pieces, fontsize=size, parse_math=False, **turned)
