"""Draws a model, and what happens inside a translator: `tfformer picture RUN [TEXT] --out FOLDER`.

    tfformer picture runs/dates --out pictures
    tfformer picture runs/dates "4 July 2031" --out pictures
    tfformer picture runs/mine "A house." --target "Ein Haus." --out pictures --format svg

Of a run of any Transformer, it draws:

    architecture     the layers, with the shape on every arrow

Of a translator with a TEXT, it also draws for the text and its translation (the run's own, or
--target):

    heads-encoder, heads-decoder, heads-cross   the attention of each head in each layer
    lines-encoder, lines-decoder, lines-cross   the same as lines between pieces
    beams            the beam search as a tree, with scores and pruned hypotheses
    tokens           the probability of each piece
    distributions    the model's distribution at each position, beside the smoothed target
    masks            which positions each position can see; with two padding positions, as in a
                     batch
    positions        the position encodings, and how similar each two are, for a model that adds
                     something to the embeddings
    curves           learning rate, loss and BLEU of the training, if the run has its log

In heat-maps, rows are queries and columns are keys. In line pictures, queries are on the left and
keys on the right. The tree shows the run's own search, even with --target.

Exit codes: 0 drawn; 1 an error of the run, a text or the folder; 2 wrong usage; 130 or 143
interrupted.
"""

import sys
from pathlib import Path

from tfformer.terminal.command import Parser, close_stdout, main_of

from .report.picture_language import WORDS, choose

FORMATS = ("png", "svg")
# The maximum of source and of target pieces: with more, the pictures are unreadable.
MAXIMUM = 64
PADDING = "<pad>"


def parser():
    """The command's arguments."""
    parser = Parser("training.picture", __doc__, prints=True, reads=["run"])
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("text", nargs="?", help="the text to translate; default: none")
    parser.add_argument("--target", help="a translation; default: the run's own")
    parser.add_argument("--out", required=True, type=Path, help="a folder for the pictures")
    parser.add_argument(
        "--format", nargs="+", choices=FORMATS, default=list(FORMATS), help="default: both"
    )
    parser.add_argument(
        "--language", choices=WORDS, default="en",
        help="of the words in the pictures: English (default) or Chinese",
    )  # fmt: skip
    return parser


def _run(command, options):
    from .report.fonts import lettered
    from .report.picture import write_picture

    if options.text is None and options.target is not None:
        command.error("--target needs a TEXT")
    choose(options.language)
    try:
        texts, figures = [], {"architecture": architecture(options.run)}
        if options.text is not None:
            texts, more = _of_text(options)
            figures |= more
        options.out.mkdir(parents=True, exist_ok=True)
        with lettered([*texts, *WORDS[options.language].values()]):
            for name, draw in figures.items():
                paths = [options.out / f"{name}.{kind}" for kind in dict.fromkeys(options.format)]
                write_picture(paths[0], draw(), *paths[1:])
                print(*paths, sep="\n", flush=True)
    except BrokenPipeError:
        close_stdout()
        return 0
    except (ValueError, OSError) as error:
        return command.fail(error)
    return 0


def architecture(run):
    """A function that draws the architecture of a run's model."""
    from tfformer.run import read_config, read_sizes

    from .pictures.architecture import architecture_figure, columns_of

    config = read_sizes(run, read_config(run))
    try:
        columns_of(config)
    except ValueError as error:
        raise ValueError(f"{run}: {error}") from error
    return lambda: architecture_figure(config)


def _of_text(options):
    """The labels of all pictures for a text, and {name of a picture: a function that draws it}."""
    from tfformer.run import load_translator

    translator = load_translator(options.run, explain=True)
    require_short(translator, "text", options.text)
    target = options.target
    if target is None:
        (target,) = translator.translate([options.text])
    require_short(translator, "target" if options.target else "the run's translation", target)
    return drawn(options.run, translator, options.text, target)


def require_short(translator, name, text):
    """Raises a ValueError if a text is too long for a picture. `name` is its name in the error."""
    tokenizer = translator.tokenizer
    encode, longest = tokenizer.encode_target, translator.max_target_length
    if name == "text":
        encode, longest = tokenizer.encode_source, translator.max_source_length
    count, maximum = len(encode([text])[0]) - 1, min(MAXIMUM, longest - 1)
    if not 1 <= count <= maximum:
        raise ValueError(f"{name} must have 1 to {maximum} pieces, got {count}: {text!r}")


def drawn(run, translator, source, target):
    """The labels of all pictures, and {name of a picture: a function that draws it}."""
    import numpy as np

    from .pictures import attention, beams, curves, inside, masks, positions, probabilities
    from .preparation.prepare import PREPARED, read_settings
    from .recipe import Recipe
    from .report.history import read_history
    from .step.model import schedule_of
    from .tasks import TASKS

    model, tokenizer = translator.model, translator.tokenizer
    seen = inside.look_inside(model, tokenizer, source, target)
    tree = inside.search_tree(translator, source)
    sides = {
        "encoder": (seen.source, seen.source, ("source", "source")),
        "decoder": (seen.target, seen.read, ("written next", "read so far")),
        "cross": (seen.target, seen.source, ("written next", "source")),
    }
    figures = {}
    for kind, (queries, keys, axes) in sides.items():
        words = {"title": f"{kind}: what each head attends to", "axes": axes}
        known = seen.attention[kind], queries, keys
        figures[f"heads-{kind}"] = lambda k=known, w=words: attention.heads_figure(*k, **w)
        figures[f"lines-{kind}"] = lambda k=known, w=words: attention.lines_figure(*k, **w)
    padded = [[*pieces, PADDING, PADDING] for pieces in (seen.source, seen.read)]
    real = [np.arange(len(pieces)) < len(pieces) - 2 for pieces in padded]
    # An imported model has neither settings nor a log.
    settings = read_settings(run, Recipe()) if (run / PREPARED).exists() else None
    smoothing = settings.smoothing if settings else 0.0
    history, task = read_history(run), TASKS["translation"]
    schedule = None
    if settings and history and "step" in history[-1]:
        steps = round(history[-1]["step"] / history[-1]["epoch"])
        schedule = schedule_of(settings, model.config.d_model, steps)
    probs = np.exp(seen.log_probs)
    ids = probabilities.likeliest(seen.labels, probs)
    likely = [inside.names(tokenizer.target_pieces(row[None].astype("int32"))) for row in ids]
    figures["beams"] = lambda: beams.beams_figure(tree)
    figures["tokens"] = lambda: probabilities.tokens_figure(
        seen.pieces, seen.log_probs[range(len(seen.labels)), seen.labels]
    )
    figures["distributions"] = lambda: probabilities.distributions_figure(
        seen.labels, probs, ids, likely, smoothing
    )
    figures["masks"] = lambda: masks.masks_figure(*padded, *real)
    if (table := inside.places(model)) is not None:
        figures["positions"] = lambda: positions.positions_figure(table)
    if history:
        figures["curves"] = lambda: curves.curves_figure(
            history, task.figure, task.figure_words(), schedule
        )
    pieces = *tree.pieces, *likely, seen.pieces, seen.source, seen.target
    return [piece for row in pieces for piece in row], figures


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
