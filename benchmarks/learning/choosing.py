"""Compares choices among several translations: `python -m benchmarks.learning.choosing`.

    python -m benchmarks.learning.choosing runs/one --backward runs/back --source val.en \\
        --target val.de --language de

The candidates are found once, by beam search and by sampling. Each row of the table is another
choice among them, by `training.evaluation.reranking`. The last row is the upper limit of all
choices: for each text the candidate with the highest BLEU.

Exit codes: 0 printed; 1 an error of a run or a file; 2 wrong usage; 130 or 143 interrupted.
"""

import functools
import sys
import time
from pathlib import Path

from tfformer.terminal.command import LARGEST, Number, Parser, count, main_of
from training.evaluation.search_options import UTILITIES

# Weights of another model; the search has weight 1.
WEIGHTS = (0.25, 0.5, 1.0, 2.0)
BATCH = 32  # texts that are searched at once


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.learning.choosing", __doc__, prints=True)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--ensemble", type=Path, nargs="+", default=[], metavar="RUN")
    parser.add_argument("--backward", type=Path, metavar="RUN", help="translates the other way")
    parser.add_argument("--right-to-left", type=Path, metavar="RUN", help="its words are reversed")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--language", default="", help="of the target: adds BLEU of the literature")
    parser.add_argument("--beam-width", type=count(64), default=16, help="candidates; default 16")
    parser.add_argument("--length-penalty", type=Number(float, 0, 10), help="default: the run's")
    parser.add_argument("--samples", type=count(), default=32, help="drawn; default 32")
    parser.add_argument(
        "--weights",
        type=Number(float, 0, LARGEST),
        nargs="+",
        default=WEIGHTS,
        help=f"of the other models; default {WEIGHTS}",
    )
    return parser


def choices(options, backward, right_to_left):
    """The rows: {name: (a `Choice`, whether the samples are candidates too)}."""
    from training.evaluation.reranking import Choice

    rows = {"the score of the search": (Choice(), False)}
    for utility in UTILITIES:
        rows[f"minimum Bayes risk by {utility}"] = Choice(utility), False
        rows[f"minimum Bayes risk by {utility} over samples"] = Choice(utility), True
    models = {"backward": backward, "right_to_left": right_to_left}
    for name, model in models.items():
        for weight in options.weights if model else ():
            rows[f"{name.replace('_', '-')} {weight:g}"] = (
                Choice(**{f"{name}_weight": weight}),
                False,
            )
    for weight in options.weights if all(models.values()) else ():
        both = Choice(backward_weight=weight, right_to_left_weight=weight)
        rows[f"both {weight:g}"] = both, False
    return rows


def _run(command, options):
    import numpy as np

    from tfformer.run import load_translator
    from training.data.reader import read_pairs
    from training.evaluation import reranking as choosing
    from training.methods.reward import sentence_bleu
    from training.metrics.bleu import bleu, bleu_multi30k, chrf

    try:
        others = [load_translator(run) for run in options.ensemble]
        search = {"beam_width": options.beam_width}
        if options.length_penalty is not None:
            search["length_penalty"] = options.length_penalty
        translator = load_translator(options.run, ensemble=others, **search)
        backward, right_to_left = (
            load_translator(run) if run else None
            for run in (options.backward, options.right_to_left)
        )
        pairs = list(read_pairs(options.source, options.target))
    except (ValueError, OSError) as error:
        return command.fail(error)
    texts, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    started = time.monotonic()
    asked = choosing.Choice(backward=backward, right_to_left=right_to_left)

    def of_search(one):
        """The candidates of the search, without the samples."""
        there = np.isfinite(one.scores)
        few = [text for text, kept in zip(one.texts, there, strict=True) if kept]
        return choosing.Candidates(few, one.scores[there], one.log_probs[there], np.zeros(len(few)))

    found, few, features = [], [], []
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        found += choosing.candidates_of(translator, batch, options.samples)
        few += map(of_search, found[start:])
        features += choosing.features_of(batch, few[start:], asked)
    print(f"candidates, and what others say: {time.monotonic() - started:.0f} s", file=sys.stderr)

    def row(name, answers):
        cells = [f"{bleu(answers, references)[0]:.2f}", f"{chrf(answers, references)[0]:.2f}"]
        if options.language:
            cells.insert(0, f"{bleu_multi30k(answers, references, options.language)[0]:.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    titles = (["BLEU, literature"] if options.language else []) + ["BLEU, 13a", "chrF2"]
    print(f"| | {' | '.join(titles)} |\n|---|{'--:|' * len(titles)}")
    for name, (choice, drawn) in choices(options, backward, right_to_left).items():
        answers = [
            choosing.best(one, choice, own)
            for one, own in zip(found if drawn else few, features, strict=True)
        ]
        row(name, answers)
    best = [
        max(one.texts, key=functools.partial(sentence_bleu, reference=reference))
        for one, reference in zip(found, references, strict=True)
    ]
    row("*the best of the candidates*", best)
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
