"""Measures the gain of averaging the last epochs' weights: `python -m benchmarks.averages RUN`.

    python -m benchmarks.averages runs/multi30k --recipe multi30k --data data/multi30k

It scores the run's own search on the recipe's val with different weights: those after the last
epoch; the mean of the last 2, 4, 8, ... that the run has kept (`training.train --average`); and
their exponential moving average, in which an epoch has half the share of the next (and the first
as much as the second).

Exit codes: 0 measured; 1 an error of the run or the corpus; 2 wrong usage; 130 interrupted.
"""

import sys
from pathlib import Path

from tfformer.terminal.command import Parser, main_of
from training.evaluate import evaluate, read_test_set


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.averages", __doc__)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument(
        "--recipe", required=True, help="use the val of this recipe: a name, or a file"
    )
    parser.add_argument("--data", type=Path, help="the folder of the recipe's data")
    nothing = dict.fromkeys(("source", "target", "columns", "source_language", "language"))
    parser.set_defaults(split="val", **nothing)
    return parser


def _run(command, options):
    try:
        pairs, language = read_test_set(options, options.run)
    except (ValueError, OSError) as error:
        return command.fail(error, 2 if type(error) is ValueError else 1)
    head = "| weights | perplexity | BLEU, literature | BLEU, 13a |\n|---|--:|--:|--:|\n"
    try:
        for name, scores in measure(options.run, pairs, language):
            literature = f"{scores['bleu_multi30k']:.2f}" if language else ""
            figures = f"{scores['perplexity']:.3f} | {literature} | {scores['bleu']:.2f}"
            print(f"{head}| {name} | {figures} |", flush=True)
            head = ""
    except (ValueError, OSError) as error:
        return command.fail(error)
    return 0


def measure(run, pairs, language):
    """The scores of each average: pairs of its name and what `training.evaluate.evaluate` gives.

    Args:
        run: the run directory.
        pairs: the test set.
        language: the target language, or "".
    """
    from tfformer.run import load_translator, set_weights
    from training.report.history import read_history
    from training.trainer.checkpoint import EpochWeights

    history = read_history(run)
    kept = EpochWeights(run / "checkpoints", len(history))
    epochs = kept.epochs(len(history))
    if not epochs:
        raise ValueError(f"{run} must have kept the weights of an epoch, got none")
    translator = load_translator(run)
    model = translator.model

    def scored():
        return evaluate(translator, pairs, language=language)[0]

    yield "as published", scored()
    count = 1
    while count <= len(epochs):
        set_weights(model, kept.mean(epochs[-count:]))
        yield f"mean of the last {count}" if count > 1 else "of the last epoch", scored()
        count *= 2
    moving = kept.mean(epochs[:1])
    for epoch in epochs[1:]:
        weights = kept.mean([epoch])
        moving = {name: (moving[name] + weights[name]) / 2 for name in weights}
    set_weights(model, moving)
    yield f"exponential moving average of the last {len(epochs)}", scored()


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
