"""Scores studies that were trained on JAX: `python -m benchmarks.on_jax.score_studies`.

    python -m benchmarks.on_jax.score_studies results.jsonl.gz --packed studies.npz \\
        --data data/multi30k --studies norms dropout --pictures pictures

It prints the table of each study: mean and standard deviation over the seeds, and a p-value for the
difference from the first row, by `training.compare.significance`; --against puts another row first,
and --group computes p of the pairs of one group alone. --pictures draws each study as
`benchmarks.learning.study` does.

Exit codes: 0 printed; 1 an error of a file; 2 wrong usage; 130 or 143 interrupted.
"""

import sys
from pathlib import Path

import numpy as np

from benchmarks.learning.study import P_TITLES, flat, reached
from benchmarks.learning.trainings import file_name, table
from benchmarks.on_jax.pack_studies import read_studies, read_words
from benchmarks.on_jax.train_studies import read_results
from tfformer.terminal.command import Parser, main_of


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.on_jax.score_studies", __doc__)
    parser.add_argument("results", type=Path, help="the file of benchmarks.on_jax.train_studies")
    parser.add_argument("--packed", type=Path, required=True, help="the file that was trained")
    parser.add_argument("--studies", nargs="+", required=True, help="their names")
    parser.add_argument("--against", metavar="ROW", help="put this row first. Default: the study's")
    parser.add_argument("--group", help="the group of pairs that p is computed of. Default: all")
    parser.add_argument("--data", type=Path, help="a folder of data that the studies name")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures")
    return parser


class Trained:
    """A model of a study.

    Args:
        row: the name of its row.
        found: its dict of `train_studies`.
        pairs: the pairs that it has translated.
        tokenizer: the tokenizer.
    """

    def __init__(self, row, found, pairs, tokenizer):
        self.row, self.found, self.pairs, self.tokenizer = row, found, pairs, tokenizer
        self.texts = self._texts(found["translations"])

    def _texts(self, translations):
        import tensorflow as tf

        ids = tf.ragged.constant(translations, dtype="int32", ragged_rank=1)
        return [text.decode() for text in self.tokenizer.decode(ids).numpy()]

    def history(self):
        """The rows of `log.csv`."""
        from training.metrics.bleu import bleu

        references = [pair.target for pair in self.pairs]
        return [
            epoch | {"val_bleu": bleu(self._texts(epoch["translations"]), references)[0]}
            if "translations" in epoch
            else epoch
            for epoch in self.found["history"]
        ]

    def figures(self):
        """The results by name, as those of `benchmarks.learning.study.Training`."""
        from training.evaluate import scores_of_texts

        return flat(scores_of_texts(self.texts, self.pairs)) | {
            "perplexity": self.found["perplexity"],
            "parameters": self.found["parameters"] / 1e6,
            "epochs_to_99": reached(self.history(), "val_bleu", 99),
        }


def trained(name, study, results, packed):
    """The `Trained` of a study, by row and seed.

    Args:
        name, study: the name and the `Study`.
        results: the dicts of `train_studies`.
        packed: the arrays of `pack_studies`.
    """
    from tfformer.text.tokenizer import Tokenizer
    from training.evaluate import parser, read_test_set

    pairs, _ = read_test_set(parser().parse_args(["run", *study.evaluate]), "run")
    of_rows = {}
    for found in results:
        for row in (row for other, row in found["rows"] if other == name):
            of_rows.setdefault(row, []).append(found)
    made = []
    for row, words in study.rows.items():
        model = packed[f"{Path(read_words(words)[0].recipe).stem}/tokenizer"].tobytes()
        for found in sorted(of_rows.get(row, ()), key=lambda found: found["seed"]):
            made.append(Trained(row, found, pairs, Tokenizer(model)))
    return made


def _run(command, options):
    try:
        studies = read_studies(options)
    except (ValueError, OSError) as error:
        return command.fail(error, 2)

    from benchmarks.learning.picture import draw
    from training.compare import significance

    try:
        results = read_results(options.results)
        with np.load(options.packed, allow_pickle=False) as file:
            packed = dict(file)
        for name, study in studies.items():
            models = trained(name, study, results, packed)
            if not models:
                print(f"{name}: no row is trained", file=sys.stderr)
                continue
            models.sort(key=lambda model: model.row != options.against)
            kept = [n for n, pair in enumerate(models[0].pairs)
                    if options.group in (None, pair.group)]  # fmt: skip
            if not kept:
                raise ValueError(f"--group must be a group of {name}, got {options.group}")
            systems = {}
            for model in models:
                systems.setdefault(model.row, []).append([model.texts[n] for n in kept])
            p = significance(systems, [models[0].pairs[n].target for n in kept])
            print(f"{name}\n\n{table(models, study.figures, p, P_TITLES['first'])}\n")
            if options.pictures:
                options.pictures.mkdir(parents=True, exist_ok=True)
                curve, figure = study.picture
                path = options.pictures / f"{file_name(name)}.png"
                draw(path, models, curve, figure, study.figures[figure][0])
    except (ValueError, KeyError, OSError) as error:
        return command.fail(error)
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
