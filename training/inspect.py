"""Checks a corpus before training: `tfformer inspect SOURCE TARGET`.

    tfformer inspect train.en train.de --val val.en val.de --test test.en test.de
    tfformer inspect train.tsv --run runs/mine --out runs/mine/inspect

It counts the pairs that training drops by its default limits (characters, ratio of lengths). It
also counts what should not be in a corpus: repeated pairs, sources equal to their translation,
encoding errors, lines that look like the other language, and texts of the validation or test corpus
that are also in the training corpus. With the vocabulary of --run, or one learned here, it reports
lengths in tokens, the share of padding in a batch, and the share of tokens that are single bytes.
The report ends with advice, and with the command that trains on these files.

--out writes inspect.json (all numbers), lengths.png, and suspects.tsv: up to 1,000 lines for each
reason. Repetitions and overlap with validation and test are only counted. A line looks like the
other language if its sequences of three characters are more likely in the other file than in its
own, over the whole line and by counts from this corpus.

Memory: about 60 bytes a pair. Exit codes: 0 checked, whatever was found; 1 an error of the corpus
or the disk; 2 wrong usage; 130 or 143 interrupted.
"""

import shlex
import sys
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np

from tfformer.terminal.command import Number, Parser

from .data.reader import CorpusError, CorpusReport, is_blank, read_pairs, require_files

SAMPLE = 50_000  # pairs of which a vocabulary and the letters of a language are learned
VOCABULARY = 8000


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
    most = int(np.quantile(findings.tokens, 0.999))
    bins = np.arange(0, most + 2, 1 + most // 60)
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
    from .data.faults import suggestions

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
    return parser


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda options: _run(command, options), arguments)


def _run(command, options):
    for name in ("val", "test"):
        if len(getattr(options, name) or [1]) > 2:
            command.error(f"--{name} must be two files or a TSV, got {len(getattr(options, name))}")
    try:
        return _inspect(options)
    except (ValueError, OSError) as error:
        return command.fail(error)


def _inspect(options):
    # Here, not above: they bring TensorFlow with them.
    from tfformer.files import write_atomically, write_json
    from tfformer.run import load_tokenizer
    from tfformer.terminal.progress_bar import Bar
    from tfformer.text.tokenizer import Tokenizer

    from .data.faults import Letters, inspect

    report = CorpusReport()
    paths = [options.source, options.target] if options.target else [options.source]
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
        findings = inspect(pairs, tokenizer, Letters(usable), others, bar.to)
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
    print(f"to train: {training_command(options)}")
    return 0


def training_command(options):
    """The command that trains on this corpus."""
    words = ["--source", options.source]
    if options.target:
        words += ["--target", options.target]
    if options.val:
        words += ["--val-source", options.val[0]]
        words += ["--val-target", *options.val[1:]] if len(options.val) > 1 else []
    line = shlex.join(["tfformer", "train", *map(str, words)])
    return f"{line} --run runs/mine"


def show(findings):
    """Prints the findings as tables."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .data.faults import suggestions

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


if __name__ == "__main__":
    sys.exit(main())
