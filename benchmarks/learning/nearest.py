"""Makes a corpus of a run's hypotheses nearest to the references.

    python -m benchmarks.learning.nearest runs/one --source train.en --target train.de \\
        --out data/nearest
    python -m training.train --source data/nearest/source.txt --target data/nearest/target.txt \\
        --val-source val.en --val-target val.de --run runs/final --init runs/one

This is sequence-level interpolation (Kim and Rush 2016, section 3.3): from the hypotheses of a
source, it takes the one with the highest BLEU against the reference. The corpus has it besides the
reference, only once if the two are equal.

Exit codes: 0 written; 1 an error of a run or a file; 2 wrong usage; 130 or 143 interrupted.
"""

import functools
import sys
from pathlib import Path

from tfformer.terminal.command import Number, Parser, count, main_of


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.learning.nearest", __doc__, prints=True)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--source", type=Path, required=True, help="a text file")
    parser.add_argument("--target", type=Path, required=True, help="its translation, line by line")
    parser.add_argument("--out", type=Path, required=True, help="the new folder")
    beam = Number(int, 2, 64, rule="be in [2, 64]")
    parser.add_argument("--hypotheses", type=beam, default=8, help="of a source; default 8")
    parser.add_argument("--batch-size", type=count(), default=64, help="texts at once; default 64")
    return parser


def nearest(translator, texts, references, batch_size=None):
    """For each text, the hypothesis with the highest BLEU against its reference. If several are
    equal, it is the most likely one.

    Args:
        translator: a `Translator`, whose beam width is the number of hypotheses.
        texts, references: strings, the same number of both.
        batch_size: texts at once, as for `Translator.translate`.

    Returns:
        A list of strings, each in one line.
    """
    import tensorflow as tf

    from training.evaluation.reranking import candidates_of
    from training.methods.reward import sentence_bleu

    def hypotheses(texts):
        """The hypotheses of each text in a batch, best first, each in one line."""
        found = candidates_of(translator, [text.decode() for text in texts.numpy()])
        return tf.constant(["\n".join(" ".join(x.split()) for x in one.texts) for one in found])

    return [
        max(lines.split("\n"), key=functools.partial(sentence_bleu, reference=reference))
        for lines, reference in zip(
            translator.in_batches(texts, batch_size, hypotheses), references, strict=True
        )
    ]


def _run(command, options):
    from tfformer.files import write_lines
    from tfformer.run import load_translator, require_new
    from training.data.reader import read_pairs
    from training.diversify import diversify

    try:
        require_new("--out", options.out)
        pairs = [(pair.source, pair.target) for pair in read_pairs(options.source, options.target)]
        translator = load_translator(
            options.run, beam_width=options.hypotheses, max_batch_size=options.batch_size
        )
        references = [target for _, target in pairs]
        found = diversify(
            pairs,
            [translator],
            [],
            lambda model, texts: nearest(model, texts, references, options.batch_size),
        )
        options.out.mkdir(parents=True)
        for side, texts in zip(("source", "target"), zip(*found, strict=True), strict=True):
            write_lines(options.out / f"{side}.txt", texts)
    except (ValueError, OSError) as error:
        return command.fail(error)
    print(f"{options.out}: {len(found):,} pairs, made of {len(pairs):,}")
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
