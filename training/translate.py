"""Translates, completes or labels lines of standard input: `tfformer translate RUN`.

An encoder-decoder translates each line. A language model continues it. Other families label it.

    echo "4 July 2031" | tfformer translate runs/dates
    tfformer translate runs/mine < text.en > text.de
    tfformer translate runs/one --ensemble runs/two runs/three < text.en > text.de
    tfformer translate runs/dates --picture attention.png <<< "4 July 2031"

Exit codes: 0 translated; 1 an error of the run or the output; 2 wrong usage; 130 or 143
interrupted.
"""

import itertools
import sys
from pathlib import Path

from tfformer.terminal.command import Parser, close_stdout, count, main_of

from .evaluation.search_options import (
    SEARCHED_RUNS,
    add_search,
    load_searched,
    search_options,
)


def parser():
    """The command's arguments."""
    parser = Parser("training.translate", __doc__, prints=True, reads=["run", *SEARCHED_RUNS])
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--greedy", action="store_true", help="greedy instead of beam search")
    add_search(parser)
    parser.add_argument("--batch-size", type=count(), default=32, help="lines at once; default 32")
    parser.add_argument(
        "--picture", type=Path, metavar="PNG",
        help="draw the attention for the first line, and which pieces are copied",
    )  # fmt: skip
    return parser


def _run(command, arguments):
    try:
        options = search_options(arguments)
    except ValueError as error:
        return command.fail(error, 2)
    if arguments.picture and not arguments.picture.parent.is_dir():
        error = f"--picture must be in a folder that exists, got {arguments.picture}"
        return command.fail(error)

    from tfformer.models import ENCODER_DECODER
    from tfformer.run import read_config, require_family

    try:
        if arguments.picture:
            require_family(arguments.run, read_config(arguments.run), ENCODER_DECODER)
        service = load_searched(arguments, options)
        # At a terminal, each line is answered at once.
        batch_size = 1 if sys.stdin.isatty() else arguments.batch_size
        lines = stdin_lines()
        picture = arguments.picture
        while chunk := list(itertools.islice(lines, batch_size)):
            answers = service.answer(chunk, batch_size, arguments.greedy)
            # A model may write a newline as a byte.
            print(*(" ".join(one.splitlines()) for one in answers), sep="\n", flush=True)
            if picture:
                draw_attention(service, chunk[0], answers[0], picture)
                picture = None
    except BrokenPipeError:
        close_stdout()
        return 0
    except (ValueError, OSError) as error:
        return command.fail(error)
    return 0


def stdin_lines():
    """The lines of standard input. Only the byte newline ends a line."""
    for line in sys.stdin.buffer:
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield line.decode(errors="replace")


def draw_attention(translator, source, target, path):
    """Draws as PNG which source pieces each target piece attends to. For a model that copies, also
    whether the piece was copied."""
    import tensorflow as tf

    from .report.attention import attention_figure
    from .report.fonts import lettered
    from .report.picture import write_picture
    from .report.piece_labels import by_character, characters

    aligned = translator.functions["align"](tf.constant([source]), tf.constant([target]))
    sides = [
        characters([piece.decode() for piece in aligned[f"{side}_tokens"][0].numpy()])
        for side in ("source", "target")
    ]
    attention = by_character(aligned["attention"][0].numpy(), *sides)
    gate = None
    if translator.model.config.copy:
        mixture = mixture_of(translator, source, target)
        gate = by_character(mixture.gate[0].numpy()[:, None], [("", 1)], sides[1])[:, 0]
    columns, rows = [[label for label, _ in side] for side in sides]
    with lettered([*columns, *rows]):
        write_picture(path, attention_figure(attention, columns, rows, gate))


def mixture_of(translator, source, target):
    """What a model that copies mixes for each target piece, see `Transformer.mixture`."""
    import tensorflow as tf

    from tfformer.config import BOS
    from tfformer.service.encoder_decoder_signatures import encode_texts

    tokenizer = translator.tokenizer
    known = (
        ("source_ids", source, tokenizer.encode_source, translator.max_source_length),
        ("target_ids", target, tokenizer.encode_target, translator.max_target_length),
    )
    ids = {name: encode_texts([text], encode, maximum)[0] for name, text, encode, maximum in known}
    ids["target_ids"] = tf.concat([[[BOS]], ids["target_ids"][:, :-1]], axis=1)
    return translator.model.mixture(ids)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
