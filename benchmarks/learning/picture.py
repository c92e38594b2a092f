"""Draws a study: how its rows learn, epoch by epoch, and their results."""

from collections import Counter

from training.report.picture import pyplot, write_picture
from training.report.picture_style import colour, mark

WIDTH = 5.2  # inches, so that letters of 10 points can be read on a phone
SEEDS = 0.36  # the height of the dots of a row
NAME = -0.25  # where the name of a row stands, above its dots
CURVES = {
    "loss": "training loss, nats a token",
    "val_bleu": "greedy BLEU on val",
    "val_perplexity": "perplexity on val",
}


def draw(path, trainings, curve, figure, title):
    """Draws the finished trainings.

    Args:
        path: the PNG file.
        trainings: each has `row`, its name, `history()`, a dict for each epoch, and `figures()`,
            numbers by name, or None if it is not finished.
        curve: a column of `log.csv`, drawn by epoch, a line for each seed.
        figure: the name of a number, drawn as a dot for each seed. An epoch after the last one was
            not reached: it is written as text.
        title: the title of that number.
    """
    done = [(one, found) for one in trainings if (found := one.figures())]
    rows = list(dict.fromkeys(one.row for one, _ in done))
    heights = (2.8, 0.7 + 0.55 * len(rows))
    shape = {"figsize": (WIDTH, sum(heights)), "layout": "constrained", "height_ratios": heights}
    picture, (lines, dots) = pyplot().subplots(2, 1, **shape)
    missed, drawn, seeds = Counter(), Counter(), Counter(one.row for one, _ in done)
    for one, found in done:
        number = rows.index(one.row)
        look = {"color": colour(number), "marker": mark(number)}
        every = one.history()
        history = [row for row in every if curve in row]
        epochs, values = ([row[name] for row in history] for name in ("epoch", curve))
        lines.plot(epochs, values, markersize=5, linewidth=1.2, **look)
        if figure == "epochs_to_99" and found[figure] > every[-1]["epoch"]:
            missed[number] += 1
        else:
            # Seeds with the same result stay visible.
            at = number + 0.03 + SEEDS * drawn[number] / max(1, seeds[one.row] - 1)
            dots.plot(found[figure], at, markersize=6, **look)
            drawn[number] += 1
    for number, count in missed.items():
        of = seeds[rows[number]]
        said = "not reached" if count == of else f"{count} of {of} not reached"
        at_right = {"transform": dots.get_yaxis_transform(), "ha": "right", "va": "center"}
        dots.text(0.98, number + NAME, said, color=colour(number), **at_right)
    lines.set(xlabel="epoch", ylabel=CURVES.get(curve, curve))
    lines.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    lines.set_xlim(lines.dataLim.x0 - 0.5, lines.dataLim.x1 + 0.5)
    dots.set(xlabel=title, yticks=[n + NAME for n in range(len(rows))], yticklabels=rows)
    dots.tick_params(axis="y", length=0, pad=-6)
    for label in dots.get_yticklabels():
        label.set_horizontalalignment("left")
    dots.set_ylim(len(rows) - 0.5, -0.5)
    dots.margins(x=0.1)
    lines.grid(alpha=0.3)
    dots.grid(axis="x", alpha=0.3)
    write_picture(path, picture)
