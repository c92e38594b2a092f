"""Which choice among several translations pays: `python -m benchmarks.learning.choosing`.

    python -m benchmarks.learning.choosing runs/one --backward runs/back --source val.en \\
        --target val.de --language de

Candidates are found once, by the beam and by draws, and each row of the table is another choice
among them: `training.choosing` has the rows that paid. The last row is no choice, but the best that
any choice could come to: of each text the candidate of the greatest BLEU.

Exit codes: 0 printed; 1 a run or a file is at fault; 2 wrong usage; 130 or 143 interrupted.
"""

import sys
import time
from pathlib import Path

from training.command import LARGEST, Number, Parser, count

# How often everything else's minute was counted in: seconds with two digits.
WEIGHTS = (0.25, 0.5, 1.0, 2.0)


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
    parser.add_argument("--n-best", type=count(), default=16, help="of the beam; default 16")
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
    """The rows: {name: `Choice`}, and whether its candidates are those of the search alone."""
    from training.choosing import Choice

    rows = {"the score of the search": (Choice(options.n_best), True)}
    for utility in ("bleu", "chrf"):
        choice = Choice(options.n_best, utility=utility)
        rows[f"minimum Bayes risk by {utility}, the n best"] = choice, True
        rows[f"minimum Bayes risk by {utility}, samples"] = choice, False
    for name, model in (("backward", backward), ("right_to_left", right_to_left)):
        for weight in options.weights if model else ():
            changes = {name: model, f"{name}_weight": weight}
            rows[f"{name.replace('_', '-')} {weight:g}"] = Choice(options.n_best, **changes), True
    if backward and right_to_left:
        for weight in options.weights:
            both = dict(backward_weight=weight, right_to_left_weight=weight)
            rows[f"both {weight:g}"] = Choice(options.n_best, **both), True
    return rows


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda options: _run(command, options), arguments)


def _run(command, options):
    import dataclasses

    import numpy as np

    from tfformer.run import load_translator
    from training import choosing
    from training.bleu import bleu, bleu_multi30k, chrf
    from training.data.reader import read_pairs
    from training.utility import UTILITIES

    try:
        others = [load_translator(run) for run in options.ensemble]
        translator = load_translator(options.run, ensemble=others)
        backward, right_to_left = (
            load_translator(run) if run else None
            for run in (options.backward, options.right_to_left)
        )
        pairs = list(read_pairs(options.source, options.target))
    except (ValueError, OSError) as error:
        return command.fail(error)
    texts, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    started = time.monotonic()
    found = choosing.candidates_of(translator, texts, options.n_best, options.samples)
    print(f"candidates: {time.monotonic() - started:.0f} s", file=sys.stderr)
    asked = choosing.Choice(options.n_best, backward=backward, right_to_left=right_to_left)
    features = choosing.features_of(texts, found, asked)
    print(f"with what others say: {time.monotonic() - started:.0f} s", file=sys.stderr)

    def of_search(one):
        """The candidates that the search found, and nothing of what was drawn."""
        there = np.isfinite(one.scores)
        few = [text for text, kept in zip(one.texts, there, strict=True) if kept]
        return choosing.Candidates(few, one.scores[there], one.log_probs[there], np.zeros(len(few)))

    def row(name, answers):
        cells = [f"{bleu(answers, references)[0]:.2f}", f"{chrf(answers, references)[0]:.2f}"]
        if options.language:
            cells.insert(0, f"{bleu_multi30k(answers, references, options.language)[0]:.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    titles = (["BLEU, literature"] if options.language else []) + ["BLEU, 13a", "chrF2"]
    print(f"| | {' | '.join(titles)} |\n|---|{'--:|' * len(titles)}")
    few = [of_search(one) for one in found]
    for name, (choice, alone) in choices(options, backward, right_to_left).items():
        if not alone:
            # The hypotheses of the search are candidates, what was drawn is what they are asked of.
            choice = dataclasses.replace(choice, samples=options.samples)
        answers = [
            choosing.best(text, one, choice, own[: len(one.texts)])
            for text, one, own in zip(texts, few if alone else found, features, strict=True)
        ]
        row(name, answers)
    best = [
        one.texts[int(UTILITIES["bleu"](one.texts, [reference])[:, 0].argmax())]
        for one, reference in zip(found, references, strict=True)
    ]
    row("*the best of the candidates*", best)
    return 0


if __name__ == "__main__":
    sys.exit(main())
