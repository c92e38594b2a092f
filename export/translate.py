"""Translates lines of standard input with a SavedModel: `tfformer translate-export DIRECTORY`.

    echo "4 July 2031" | tfformer translate-export exported/dates

The signature `serving_default` translates the texts. A separate process loads the model as the
server does: through TensorFlow's C API, without Python TensorFlow and with XLA off. So the output
is what TensorFlow Serving will answer.

Exit codes: 0 translated; 1 an error of the model; 2 wrong usage; 130 or 143 interrupted.
"""

import sys

from tfformer.terminal.command import Parser, close_stdout, count, main_of

from .capi.library import ServingError
from .remote.lines import as_line, read_lines
from .verification.errors import BrokenModel, UsageError
from .verification.paths import find_saved_model


def parser():
    """The command's arguments."""
    parser = Parser("export.translate", __doc__, prints=True)
    parser.add_argument("directory", help="a SavedModel, or a base directory of numbered versions")
    size = count()
    parser.add_argument("--batch-size", type=size, default=32, help="lines a request; default 32")
    return parser


def translate(directory, texts, batch_size=32):
    """The translations of texts by `serving_default`, the same as those of a server.

    Raises:
        UsageError, BrokenModel, ServingError: the model does not exist or cannot be served.
    """
    from .serving.bulk import BulkTranslator

    with BulkTranslator(directory, batch_size) as model:
        return model.translate(list(texts))


def _run(command, options):
    try:
        find_saved_model(options.directory)
        lines = list(read_lines(sys.stdin.buffer))
        for translation in translate(options.directory, lines, options.batch_size):
            print(as_line(translation))
        sys.stdout.flush()
    except BrokenPipeError:
        close_stdout()
    except (UsageError, BrokenModel, ServingError, OSError) as error:
        return command.fail(error, 2 if isinstance(error, UsageError) else 1)
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
