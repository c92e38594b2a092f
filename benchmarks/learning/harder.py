"""Makes a harder test set from a corpus: `python -m benchmarks.learning.harder`.

    python -m benchmarks.learning.harder --source data/multi30k/train.en \\
        --target data/multi30k/train.de --out data/harder

Texts from elsewhere have words that are not in the training data. So has this test set: each source
has a word that occurs nowhere else in the corpus. Such pairs are chosen by their checksum, so no
length is preferred. The rest of the pairs is for training:

    python -m training.train multi30k --source data/harder/train.en --target data/harder/train.de \\
        --val-source data/multi30k/val.en --val-target data/multi30k/val.de --run runs/harder
    python -m training.evaluate runs/harder --source data/harder/hard.en \\
        --target data/harder/hard.de

Exit codes: 0 written; 1 an error of a file; 2 wrong usage; 130 or 143 interrupted.
"""

import re
import sys
import zlib
from collections import Counter
from pathlib import Path

from tfformer.terminal.command import Parser, count, main_of

PAIRS = 1000


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.learning.harder", __doc__, prints=True)
    parser.add_argument("--source", type=Path, required=True, help="a text file")
    parser.add_argument("--target", type=Path, required=True, help="its translation, line by line")
    parser.add_argument("--out", type=Path, required=True, help="the folder; made if missing")
    parser.add_argument(
        "--pairs", type=count(), default=PAIRS, help=f"of the test set; default {PAIRS}"
    )
    return parser


def words(text):
    """The different words of a text, ignoring case."""
    return set(re.findall(r"\w+", text.lower()))


def harder(pairs, size):
    """The numbers, in order, of at most `size` pairs. Each source has a word that occurs in no
    other source."""
    found = Counter(word for pair in pairs for word in words(pair.source))
    rare = [n for n, pair in enumerate(pairs) if any(found[w] == 1 for w in words(pair.source))]
    drawn = sorted(rare, key=lambda n: (zlib.crc32(pairs[n].source.encode()), n))
    return sorted(drawn[:size])


def _run(command, options):
    from tfformer.files import write_lines
    from training.data.reader import read_pairs

    sides = {"source": options.source.suffix, "target": options.target.suffix}
    if sides["source"] == sides["target"]:
        rule = "--source and --target must have different endings, as .en and .de"
        return command.fail(f"{rule}, got {sides['source']!r} for both", 2)
    for path in (options.source, options.target):
        if options.out.resolve() == path.resolve().parent:
            return command.fail(f"--out must be another folder than that of {path}", 2)
    try:
        pairs = list(read_pairs(options.source, options.target))
        hard = set(harder(pairs, options.pairs))
        options.out.mkdir(parents=True, exist_ok=True)
        for name, wanted in (("hard", True), ("train", False)):
            for side, ending in sides.items():
                chosen = [getattr(p, side) for n, p in enumerate(pairs) if (n in hard) == wanted]
                write_lines(options.out / f"{name}{ending}", chosen)
    except (ValueError, OSError) as error:
        return command.fail(error)
    print(f"{options.out}: {len(hard):,} pairs in hard, {len(pairs) - len(hard):,} in train")
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
