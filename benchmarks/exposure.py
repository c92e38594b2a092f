"""Measures exposure bias: `python -m benchmarks.exposure NAME=RUN[,RUN] ... --source F --target F`.

    python -m benchmarks.exposure forced=runs/forced-0,runs/forced-1 sampled=runs/sampled-0 \\
        --source data/multi30k/val.en --target data/multi30k/val.de --picture exposure.png

Several runs of a name are its seeds: the table shows mean and standard deviation.

In training a translator reads true words, in use its own. Two greedy translations of each source
are made: one reads its own words; the other reads, at each position, the reference's words before
it. A token is right if the reference has it, at most as often as there (as for BLEU). If errors
lead to errors, the first is worse than the second towards the end of a sentence. It prints the
share of right tokens in each fifth of the sentences for both, and draws a picture on request.

Exit codes: 0 measured; 1 an error of a run or a file; 2 wrong usage; 130 interrupted.
"""

import sys
from pathlib import Path

import numpy as np

from benchmarks import machine, work
from benchmarks.learning.trainings import spread
from tfformer.terminal.command import Parser, main_of

BATCH, PARTS = 64, 5


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.exposure", __doc__)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN[,RUN]", help="runs of translators")
    parser.add_argument("--source", type=Path, required=True, help="texts")
    parser.add_argument("--target", type=Path, required=True, help="their translations")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="draw the table")
    return parser


def _run(command, options):
    from tfformer.run import RunError, load_translator
    from training.data.reader import read_pairs

    runs = work.named(command, options.runs, "NAME=RUN")
    try:
        pairs = list(read_pairs(options.source, options.target))
        if not pairs:
            raise ValueError(f"{options.source} has no pair")
        rows = {
            name: [shares(load_translator(run), pairs) for run in seeds.split(",")]
            for name, seeds in runs.items()
        }
        if options.picture:
            draw(options.picture, rows)
    except (RunError, ValueError, OSError) as error:
        return command.fail(error)
    print(f"{machine.today()}.\n")
    fifths = " | ".join(f"fifth {n + 1}" for n in range(PARTS))
    print(f"| tokens that are right, % | {fifths} |\n|---|{'--:|' * PARTS}")
    for name, seeds in rows.items():
        for n, words in enumerate(("its own words before", "true words before")):
            found = zip(*[seed[n] for seed in seeds], strict=True)
            cells = [spread([100 * share for share in fifth], "{:.1f}") for fifth in found]
            print(f"| {name}, {words} | {' | '.join(cells)} |")
    return 0


def shares(translator, pairs):
    """The shares of right tokens by fifths of the sentences: after the model's own words, and after
    true words."""
    import tensorflow as tf

    counts = [[], []]
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        sources, targets = zip(*[(pair.source, pair.target) for pair in batch], strict=True)
        labels = translator.tokenizer.encode_target(tf.constant(targets)).to_tensor()
        own = translator.translate(sources, BATCH, greedy=True)
        own = translator.tokenizer.encode_target(tf.constant(own)).to_tensor()
        ways = own, forced(translator, sources, labels)
        for found, ids in zip(counts, ways, strict=True):
            of_rows = zip(ids.numpy(), labels.numpy(), strict=True)
            found += [right(row, reference) for row, reference in of_rows]
    return [by_parts(found) for found in counts]


def forced(translator, sources, labels):
    """The most likely token at each position after the true ones, int32 [B, T]."""
    import tensorflow as tf

    from tfformer.config import PAD
    from tfformer.inference.masks import behind_bos

    source_ids = translator.tokenizer.encode_source(tf.constant(sources)).to_tensor()
    inputs = {"source_ids": source_ids, "target_ids": behind_bos(labels)}
    logits = tf.cast(translator.logits(inputs), tf.float32)
    likeliest = tf.argmax(logits[:, :, 1:], axis=-1, output_type=tf.int32) + 1
    return tf.where(labels == PAD, PAD, likeliest)


def right(ids, reference):
    """Which tokens of a row the reference has, each at most as often as there: booleans."""
    left, found = {}, []
    for token in reference[reference > 3]:
        left[token] = left.get(token, 0) + 1
    for token in ids[ids > 3]:
        found.append(left.get(token, 0) > 0)
        left[token] = left.get(token, 0) - 1
    return found


def by_parts(rows):
    """The share of True in each fifth of rows of any length."""
    sums = [[0, 0] for _ in range(PARTS)]
    for row in rows:
        for place, value in enumerate(row):
            part = sums[place * PARTS // len(row)]
            part[0] += value
            part[1] += 1
    return [hits / max(count, 1) for hits, count in sums]


def draw(path, rows):
    """Draws the mean shares as lines, solid for own words, dashed for true words.

    Bars show the standard deviation of the seeds.
    """
    from training.report.picture import pyplot, write_picture

    figure, axes = pyplot().subplots(figsize=(5.2, 5.2), layout="constrained")
    for n, (name, seeds) in enumerate(rows.items()):
        lines = 100 * np.mean(seeds, axis=0)  # [2, PARTS]
        bars = 100 * np.std(seeds, axis=0, ddof=1) if len(seeds) > 1 else np.zeros(lines.shape)
        parts = zip(lines, bars, ("-", "--"), ("own", "true"), strict=True)
        for line, bar, style, words in parts:
            axes.errorbar(
                range(1, PARTS + 1),
                line,
                yerr=bar,
                linestyle=style,
                capsize=2,
                marker="os^Dv"[n % 5],
                color=f"C{n}",
                label=f"{name}, {words} words before",
            )
    axes.set(
        xlabel="fifth of the sentence",
        ylabel="right tokens, %",
        xticks=range(1, PARTS + 1),
        title="Right tokens after own and after true words",
    )
    figure.legend(loc="outside lower center")
    write_picture(path, figure)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
