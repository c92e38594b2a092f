"""What all pictures have in common: colours, marks, and how pieces stand at an axis."""

# Colours that all eyes can tell apart (Okabe and Ito 2008), and marks where there are none.
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#000000", "#999933",
)  # fmt: skip
MARKS = "os^DvP*X"
# From white to dark, for shares from 0 to 1; and from one colour over white to another.
SHARES, SIGNED = "Blues", "PuOr"


def colour(number):
    """The colour of the n-th of several, from 0; after the last they begin again."""
    return COLOURS[number % len(COLOURS)]


def mark(number):
    """The mark of the n-th of several, from 0."""
    return MARKS[number % len(MARKS)]


def at_axis(axis, pieces=None, size=None):
    """Writes pieces along an axis of a picture, one a place; None: nothing."""
    if pieces is None:
        axis.set_ticks([])
        return
    turned = {"rotation": 90} if axis.axis_name == "x" else {}
    # A dollar is a piece, and begins no formula.
    axis.set_ticks(range(len(pieces)), pieces, fontsize=size, parse_math=False, **turned)
