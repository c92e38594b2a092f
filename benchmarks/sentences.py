"""Measures how documents are split into sentences: `python -m benchmarks.sentences [FILE ...]`.

    python -m benchmarks.sentences data/multi30k/train.en data/multi30k/train.de

From each file, 20 lines at a time are joined by spaces to a document. Lines with several sentences,
or without a full stop at the end, are left out. It counts the lines that
`tfformer.text.document.split_sentences` finds as one sentence. Also the dates of the recipe
`dates`, which should not be split.

Exit codes: 0 measured; 1 a file cannot be read; 2 wrong usage; 130 interrupted.
"""

import re
import sys
from pathlib import Path

from tfformer.terminal.command import Parser, main_of

LINES = 20  # of a document
END = re.compile(r"[.!?…。！？][\"'”’»)\]]*")


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.sentences", __doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a sentence a line")
    return parser


def _run(command, options):
    from training import dates

    print("| lines | sentences | found whole |\n|---|--:|--:|")
    every = [pair.source for split in ("val", "test") for pair in dates.pairs(split, 1000)]
    report("dates", every, 1)
    for path in options.files:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            return command.fail(f"{path}: {error}")
        report(path.name, [line.strip() for line in lines if is_sentence(line.strip())], LINES)
    return 0


def is_sentence(line):
    """Whether a line ends as a sentence does, and nowhere else."""
    ends = [match.end() for match in END.finditer(line) if line[match.end() :][:1] in ("", " ")]
    return ends == [len(line)]


def report(name, lines, size):
    """Prints how many of the lines are found again, `size` of them to a document."""
    import tensorflow as tf

    from tfformer.text.document import split_sentences

    documents = [lines[first : first + size] for first in range(0, len(lines), size)]
    found, _ = split_sentences(tf.constant([" ".join(document) for document in documents]))
    whole = 0
    for document, row in zip(documents, found.to_list(), strict=True):
        whole += len({sentence.decode() for sentence in row} & set(document))
    once = sum(len(set(document)) for document in documents)
    print(f"| {name} | {once:,} | {whole / once:.2%} |", flush=True)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
