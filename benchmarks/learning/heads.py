"""Draws the attention of heads in several translators: `python -m benchmarks.learning.heads`.

    python -m benchmarks.learning.heads "as it is=runs/guided/as-it-is-0" \\
        "one head guided=runs/guided/one-head-guided-0" \\
        --source "25. Dezember 1987" --target 1987-12-25 --picture heads.png

Each run has a row of heat-maps: the cross-attention of the first heads of its last decoder layer,
while it reads the target. Guided attention guides the first head.

Exit codes: 0 drawn; 1 an error of a run or the file; 2 wrong usage; 130 interrupted.
"""

import sys
from pathlib import Path

from benchmarks import work
from benchmarks.learning.picture import WIDTH
from tfformer.terminal.command import Parser, main_of

HEADS = 2  # side by side on a phone


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.learning.heads", __doc__)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN", help="runs of translators")
    parser.add_argument("--source", required=True, help="a text")
    parser.add_argument("--target", required=True, help="its translation")
    parser.add_argument("--picture", required=True, type=Path, metavar="PNG")
    return parser


def _run(command, options):
    from tfformer.run import RunError, load_translator

    runs = work.named(command, options.runs, "NAME=RUN")
    try:
        found = {
            name: attention(load_translator(run), options.source, options.target)
            for name, run in runs.items()
        }
        draw(options.picture, found)
    except (RunError, ValueError, OSError) as error:
        return command.fail(error)
    return 0


def attention(translator, source, target):
    """The cross-attention of the last layer's heads, [H, T, S], and labels of source and target."""
    from training.pictures.inside import look_inside

    seen = look_inside(translator.model, translator.tokenizer, source, target)
    return seen.attention["cross"][-1], seen.source, seen.target


def draw(path, found):
    """Writes the heat-maps: a row for each name, a column for each of the first heads."""
    from training.report.picture import pyplot, write_picture
    from training.report.picture_style import SHARES, at_axis

    heads = min(HEADS, *(len(weights) for weights, *_ in found.values()))
    size = (WIDTH / HEADS * heads, 2.5 * len(found))
    figure, axes = pyplot().subplots(
        len(found), heads, figsize=size, layout="constrained", squeeze=False
    )
    for row, (name, (weights, source, target)) in zip(axes, found.items(), strict=True):
        for head, ax in enumerate(row):
            ax.imshow(weights[head], cmap=SHARES, vmin=0, vmax=1, aspect="auto")
            at_axis(ax.xaxis, source, size=9)
            at_axis(ax.yaxis, target, size=9)
            ax.set_title(f"{name}: head {head + 1}", fontsize="medium")
    for ax in axes[-1]:
        ax.set_xlabel("source")
    for ax in axes[:, 0]:
        ax.set_ylabel("target")
    write_picture(path, figure)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
