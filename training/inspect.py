"""Checks a corpus before training: `tfformer inspect SOURCE TARGET`.

    tfformer inspect train.en train.de --val val.en val.de --test test.en test.de
    tfformer inspect train.tsv --run runs/mine --out runs/mine/inspect
    tfformer inspect train.en train.de --val val.en val.de --clean clean

It counts the pairs that training drops by its default limits (characters, ratio of lengths). It
also counts what should not be in a corpus: repeated pairs, sources equal to their translation,
encoding errors, different placeholders, lines that look like the other language, and texts of the
validation or test corpus that are also in the training corpus. With the vocabulary of --run, or one
learned here, it reports lengths in tokens, the share of padding in a batch, and the share of tokens
that are single bytes.
The report ends with advice, and with the command that trains on these files.

--out writes inspect.json (all numbers), lengths.png, and suspects.tsv: up to 1,000 lines for each
reason. Repetitions and overlap with validation and test are only counted. A line looks like the
other language if its sequences of three characters are more likely in the other file than in its
own, over the whole line and by counts from this corpus.

--clean writes the corpus again, into a new or empty folder, under the same file names. It drops:

    lengths        blank, too long, or too different in length: by the limits of training
    copies         the target is the source
    placeholders   %s, %d, {0} or {name} are not the same on both sides
    language       a line looks like the other language
    held-out       the pair is in --val or --test too, whatever its case and spaces
    repetitions    the same pair occurs before

Encoding errors and markup stay: repair them in the files. --keep keeps the kinds that it names. A
gzip file stays one if its name ends in .gz. A TSV gets the columns source, target and group,
without a header.

Memory: about 60 bytes a pair, with --clean 160. Exit codes: 0 checked, whatever was found; 1 an
error of the corpus or the disk; 2 wrong usage; 130 or 143 interrupted.
"""

import os
import shlex
import sys
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np

from tfformer.terminal.command import Number, Parser, main_of

from .data.reader import CorpusError, CorpusReport, is_blank, read_pairs, require_files

SAMPLE = 50_000  # pairs of which a vocabulary and the letters of a language are learned
VOCABULARY = 8000
# What --clean drops, by its word for --keep: the reasons in `training.data`.
KINDS = {
    "lengths": ("blank", "too long", "length ratio"),
    "copies": ("source = target",),
    "placeholders": ("placeholders differ",),
    "language": (
        "source looks like the target's language",
        "target looks like the source's language",
    ),
    "held-out": ("in validation or test",),
    "repetitions": ("occurs before",),
}


def drawn(pairs):
    """`SAMPLE` of the pairs, each as likely as any (algorithm R, Vitter 1985), always the same."""
    pairs, random = iter(pairs), Random(0)
    sample = list(islice(pairs, SAMPLE))
    for number, pair in enumerate(pairs, len(sample)):
        if (place := random.randrange(number + 1)) < SAMPLE:
            sample[place] = pair
    return sample


def draw_lengths(path, findings):
    """Draws the distributions of the lengths in tokens, and of their ratio."""
    from .report.picture import pyplot, write_picture

    figure, (left, right) = pyplot().subplots(1, 2, figsize=(10, 4), layout="constrained")
    maximum = int(np.quantile(findings.tokens, 0.999))
    bins = np.arange(0, maximum + 2, 1 + maximum // 60)
    for n, side in enumerate(("source", "target")):
        left.hist(findings.tokens[:, n], bins=bins, histtype="step", label=side)
    left.set(xlabel="tokens, eos counted", ylabel="texts")
    left.legend()
    ratio = np.log2(findings.tokens[:, 1] / findings.tokens[:, 0])
    right.hist(ratio, bins=60, range=(-3, 3), histtype="step", color="tab:green")
    ticks = range(-3, 4)
    right.set_xticks(ticks, [f"{2.0**tick:g}" for tick in ticks])
    right.set(xlabel="target tokens for a source token", ylabel="pairs", yscale="log")
    write_picture(path, figure)


def to_dict(findings):
    """All numbers, as a dict for JSON."""
    from .data.corpus_checks import suggestions

    return {
        "counts": dict(findings.counts),
        "lengths": findings.lengths(),
        "padding": findings.padding(),
        "bytes": findings.bytes.tolist(),
        "unknown": findings.unknown.tolist(),
        "overlap": findings.overlap,
        "suggestions": list(suggestions(findings)),
    }


def parser():
    """The command's arguments."""
    files = ["source", "target", "val", "test"]
    parser = Parser("training.inspect", __doc__, prints=True, reads=["run"], files=files)
    parser.add_argument("source", type=Path, help="a text file, or a TSV alone")
    parser.add_argument("target", type=Path, nargs="?", help="its translation, line by line")
    for name in ("val", "test"):
        parser.add_argument(
            f"--{name}", type=Path, nargs="+", metavar="FILE", help="two files, or a TSV"
        )
    vocabulary = parser.add_mutually_exclusive_group()
    vocabulary.add_argument("--run", type=Path, help="use the vocabulary of this run")
    size = Number(int, 1, 1_000_000)
    vocabulary.add_argument(
        "--vocabulary",
        type=size,
        default=VOCABULARY,
        help="size of the vocabulary that is learned here; default 8000",
    )
    parser.add_argument("--out", type=Path, help="a folder for numbers, suspects and the picture")
    parser.add_argument(
        "--clean", type=Path, metavar="FOLDER", help="a new folder for the corpus without faults"
    )
    parser.add_argument(
        "--keep", nargs="+", choices=KINDS, default=[], metavar="KIND",
        help=f"what --clean does not drop: {', '.join(KINDS)}",
    )  # fmt: skip
    return parser


def _run(command, options):
    for name in ("val", "test"):
        if len(getattr(options, name) or [1]) > 2:
            command.error(f"--{name} must be two files or a TSV, got {len(getattr(options, name))}")
    if options.keep and not options.clean:
        command.error("--keep needs --clean, the folder of the clean corpus")
    try:
        if options.clean:
            require_place(options)
        return _inspect(options)
    except (ValueError, OSError) as error:
        return command.fail(error)


def corpus_files(options):
    """The two files of the corpus, or its TSV."""
    return [options.source, options.target] if options.target else [options.source]


def require_place(options):
    """Raises a ValueError if the clean corpus cannot be written under the names of its files."""
    folder, names = options.clean, [path.name for path in corpus_files(options)]
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"--clean must not exist yet or be an empty folder, got {folder}")
    if options.out and folder.resolve() in (options.out.resolve(), *options.out.resolve().parents):
        raise ValueError(f"--clean must not be the folder of --out or above it, got {folder}")
    if len(set(names)) < len(names):
        raise ValueError(
            f"--clean needs different names of SOURCE and TARGET, got {names[0]} twice"
        )


def _inspect(options):
    # Here, not above: they bring TensorFlow with them.
    from tfformer.files import write_atomically, write_json
    from tfformer.run import load_tokenizer
    from tfformer.terminal.progress_bar import Bar
    from tfformer.text.tokenizer import Tokenizer

    from .data.corpus_checks import Letters, inspect

    report = CorpusReport()
    paths = corpus_files(options)
    require_files(paths)
    others = {
        name: list(read_pairs(*getattr(options, name)))
        for name in ("val", "test")
        if getattr(options, name)
    }
    for name, pairs in others.items():
        if not pairs:
            files = ", ".join(map(str, getattr(options, name)))
            raise CorpusError(f"--{name}: there is no pair in {files}")
    with Bar("reading the corpus", unit="pairs") as bar:
        pairs = bar.over(read_pairs(*paths))
        usable = drawn(p for p in pairs if not is_blank(p.source) and not is_blank(p.target))
    total = bar.done
    if not usable:
        raise CorpusError(f"no pair to use in {', '.join(map(str, paths))}")
    if options.run:
        tokenizer = load_tokenizer(options.run)
    else:
        sides = [[pair[side] for pair in usable] for side in (0, 1)]
        with Bar("learning a vocabulary", unit="texts") as bar:
            texts = map(bar.over, sides)
            tokenizer = Tokenizer.train(*texts, vocabulary_size=options.vocabulary)
    pairs = read_pairs(*paths, report=report)
    with Bar("checking the pairs", total) as bar:
        letters = Letters(usable)
        findings = inspect(pairs, tokenizer, letters, others, bar.to)
    findings.counts["lines that are no UTF-8"] = report.invalid_utf8
    print(f"{total:,} pairs", file=sys.stderr)
    show(findings)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "inspect.json", to_dict(findings))
        rows = [("line", "reason", "source", "target"), *findings.suspects]
        ends = str.maketrans("\r\n\t", "   ")
        rows = ["\t".join(str(cell).translate(ends) for cell in row) for row in rows]
        text = "\n".join(rows) + "\n"
        write_atomically(options.out / "suspects.tsv", text.encode(errors="replace"))
        draw_lengths(options.out / "lengths.png", findings)
        print(f"{options.out}: inspect.json, suspects.tsv, lengths.png")
    # Last: if anything before it fails, the folder is not there yet, and the same command works.
    if options.clean:
        with Bar("writing the clean corpus", total) as bar:
            counts = write_clean(options, letters, others, bar)
        show_clean(counts)
        print(f"{options.clean}: {', '.join(path.name for path in paths)}")
    print(f"to train: {training_command(options)}")
    return 0


def write_clean(options, letters, others, bar):
    """Writes the clean corpus. Returns the number of pairs kept, and dropped for each reason."""
    from .data.cleaning import Cleaner, write_corpus

    kinds = [kind for kind in KINDS if kind not in options.keep]
    dropped = [reason for kind in kinds for reason in KINDS[kind]]
    cleaner, paths = Cleaner(letters, others, dropped), corpus_files(options)
    pairs = cleaner.kept(bar.over(read_pairs(*paths)))
    write_corpus(options.clean, [path.name for path in paths], pairs)
    return {reason: cleaner.counts[reason] for reason in ("kept", *dropped)}


def training_command(options):
    """The command that trains on this corpus, or on the clean corpus."""
    paths = corpus_files(options)
    if options.clean:
        paths = [options.clean / path.name for path in paths]
    words = ["--source", paths[0]]
    if options.target:
        words += ["--target", paths[1]]
    if options.val:
        words += ["--val-source", options.val[0]]
        words += ["--val-target", *options.val[1:]] if len(options.val) > 1 else []
    line = shlex.join(["tfformer", "train", *map(str, words)])
    return f"{line} --run runs/mine"


def show_clean(counts):
    """The number of pairs kept, and dropped for each reason, as a table on standard output."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    kinds = {reason: kind for kind, reasons in KINDS.items() for reason in reasons}
    total, table = sum(counts.values()), Table("clean corpus", "reason", "pairs", "share")
    for reason, count in counts.items():
        words = (f"dropped: {kinds[reason]}", reason) if reason in kinds else (reason, "")
        table.add_row(*map(Text, words), f"{count:,}", f"{100 * count / total:.2f} %")
    Console().print(table)


def show(findings):
    """Prints the findings as tables."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .data.corpus_checks import suggestions

    console = Console()
    table = Table("found", "pairs", "share")
    total = findings.counts["pairs"]
    for reason, count in findings.counts.most_common():
        if count:
            table.add_row(Text(reason), f"{count:,}", f"{100 * count / total:.2f} %")
    for name, found in findings.overlap.items():
        text = Text(f"of {name}: source in training")
        table.add_row(
            text, f"{found['source']:,}", f"{100 * found['source'] / found['pairs']:.2f} %"
        )
    console.print(table)
    table = Table("tokens", "all", "single bytes", "unknown")
    for n, side in enumerate(("source", "target")):
        count = findings.tokens[:, n].sum()
        rates = [f"{100 * of[n] / count:.2f} %" for of in (findings.bytes, findings.unknown)]
        table.add_row(side, f"{count:,}", *rates)
    console.print(table)
    table = Table("length", "side", "mean", "median", "95 %", "99 %", "longest")
    for kind, sides in findings.lengths().items():
        for side, values in sides.items():
            table.add_row(kind, side, *[f"{value:,.1f}" for value in values.values()])
    console.print(table)
    table = Table("bucket, tokens", "pairs", "padding")
    for edge, count, padding in findings.padding():
        table.add_row(f"{edge}", f"{count:,}", f"{100 * padding:.0f} %")
    console.print(table)
    for suggestion in suggestions(findings):
        console.print(Text(f"- {suggestion}"))


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
