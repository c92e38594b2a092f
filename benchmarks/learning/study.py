"""Compares trainings with several seeds: `python -m benchmarks.learning.study STUDY.toml`.

    python -m benchmarks.learning.study benchmarks/learning/rooms.toml --out runs/rooms-study
    python -m benchmarks.learning.study benchmarks/learning/halves.toml --data data/multi30k \
        --out runs/halves-study --seeds 0 1

A study is a TOML file. Each row has its own options of `training.train`. It is trained with several
seeds and scored by `training.evaluate`:

    train = ["rooms", "--epochs", "8"]       # arguments of the training of every row
    evaluate = ["--recipe", "rooms"]         # arguments of its evaluation
    picture = ["val_loss", "accuracy"]       # for --picture: a column of log.csv, a score
    p_from = "first"                         # a column p, of the difference in BLEU from that row
    [figures]                                # scores of the evaluation: title and format
    accuracy = ["accuracy", "{:.3f}"]
    [rows]
    "a pre-trained encoder" = ["--init-encoder", "{reads}"]
    [before]                                 # trained once, with only these arguments
    reads = ["--family", "masked-language-model", "--text", "{data}/train.en"]

{data} is the folder of --data, {here} the folder of the study. If an option is given twice, that of
the row is used. Besides the scores there are `minutes`, `parameters` (millions), `epochs_to_99`
(greedy BLEU on val), `last_...` from the last row of log.csv, `lowest_perplexity` of any epoch on
val, and `groups.NAME.bleu` for a recipe's groups. p is that of `training.compare.significance`.
With p_from = "previous", it is the difference from the row before. Without p_from there is no p.

Trainings run in parallel on the CPU, a core each. The first seed of every row comes before any
second seed. Each is a run directory in --out with its log beside it. After an interruption, the
same command continues.

Exit codes: 0 the table is complete; 1 an error of a training or a run; 2 wrong usage; 130
interrupted.
"""

import math
import os
import signal
import sys
import tomllib
from pathlib import Path

from benchmarks import machine, work
from benchmarks.learning.picture import draw
from benchmarks.learning.trainings import file_name, side_by_side, table
from tfformer.files import read_arrays, read_json, write_json
from tfformer.run import read_config
from tfformer.terminal.command import Parser, main_of
from training.report.history import read_history

MINUTES = {"minutes": ("minutes", "{:.0f}")}
# {which row the others are compared with: the title of the column}
P_TITLES = {"first": "p, BLEU, from the first row", "previous": "p, BLEU, from the row before"}


class Study:
    """The content of a study's file.

    Args:
        path: the file.
        out: the folder of its runs.
        data: the folder of --data, or None.

    Attributes:
        rows: {name: arguments of `training.train`}
        before: the same for the trainings that are made once.
        evaluate: arguments of `training.evaluate`.
        figures: {name: (title, format)}
        picture: (a column of `log.csv`, the name of a figure). Default: the loss, the last figure.
        p_from: "first", "previous", or None: the row that the others are compared with.

    Raises:
        ValueError: the file has an error; the message names both.
        OSError: the file cannot be read.
    """

    def __init__(self, path, out, data=None):
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is no TOML: {error}") from error
        known = {"train": list, "evaluate": list, "picture": list, "p_from": str}
        known |= {"figures": dict, "rows": dict, "before": dict}
        found = {"before": {}, "picture": [], "p_from": ""} | found
        for name, kind in known.items():
            if not isinstance(found.get(name), kind):
                raise ValueError(f"{path} must have {name!r}, a {kind.__name__}")
        if unknown := sorted(set(found) - set(known)):
            raise ValueError(f"{path} must be of {', '.join(known)}, got also {unknown[0]!r}")
        self.path, self.out = path, out
        self.names = {name: str(out / file_name(name)) for name in found["before"]}
        self.names |= {"here": str(path.parent)} | ({"data": str(data)} if data else {})
        common = self._filled("train", found["train"])
        self.rows, self.before = (
            {name: self._filled(name, words) for name, words in found[kind].items()}
            for kind in ("rows", "before")
        )
        self.rows = {row: common + words for row, words in self.rows.items()}
        self.evaluate = self._filled("evaluate", found["evaluate"])
        self.figures = {name: tuple(shown) for name, shown in found["figures"].items()}
        self.picture = found["picture"] or ["loss", *list(self.figures)[-1:]]
        if len(self.picture) != 2 or self.picture[1] not in list(self.figures):
            raise ValueError(
                f"{path}: picture must be a column of log.csv and one of the figures "
                f"{', '.join(self.figures)}, got {self.picture}"
            )
        self.p_from = found["p_from"] or None
        if self.p_from not in (None, *P_TITLES):
            raise ValueError(f"{path}: p_from must be 'first' or 'previous', got {self.p_from!r}")

    def _filled(self, where, words):
        """Replaces each {name} in arguments."""
        try:
            return [word.format_map(self.names) for word in words]
        except KeyError as error:
            name = error.args[0]
            needs = "--data" if name == "data" else f"{name!r} under [before]"
            raise ValueError(f"{self.path}: {where} needs {needs}") from error
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            raise ValueError(f"{self.path}: {where} must be a list of words: {error}") from error

    def trainings(self, rows, seeds):
        """The trainings of `before`, then those of the rows, one seed after the other."""
        first = [Training(self, name, words, None) for name, words in self.before.items()]
        return first, [Training(self, row, self.rows[row], seed) for seed in seeds for row in rows]


class Training:
    """A training of a study, in separate processes.

    Args:
        study: a `Study`.
        row: the name of the row.
        words: arguments of `training.train`.
        seed: the seed. None: the recipe's, and the training is not scored.
    """

    def __init__(self, study, row, words, seed):
        self.study, self.row = study, row
        name = file_name(row) if seed is None else f"{file_name(row)}-{seed}"
        self.run, self.log = study.out / name, study.out / f"{name}.log"
        self.scores = None if seed is None else study.out / f"{name}.scores.json"
        self.translations = study.out / f"{name}.translations.txt"
        self.words = [*words, "--cores", "1", *(["--seed", str(seed)] if self.scores else [])]

    def begin(self):
        """Writes the arguments. Raises a ValueError if the training was begun with others."""
        path = self.run.with_suffix(".words.json")
        asked = {"train": self.words, "evaluate": self.study.evaluate if self.scores else []}
        if path.exists() and read_json(path) != asked:
            raise ValueError(f"{self.run} was begun with other options: choose another --out")
        write_json(path, asked)

    def finish(self, call):
        """Trains and scores it by `call(arguments, log)`. Finished steps are skipped."""
        if self.scores is None or not self.scores.exists():
            call(["training.train", *self.words, "--run", str(self.run), "--resume"], self.log)
        known = [self.scores, self.translations] if self.study.p_from else [self.scores]
        if self.scores and not all(path.exists() for path in known):
            output = ["--output", str(self.scores)]
            if self.study.p_from:
                output += ["--translations", str(self.translations)]
            call(["training.evaluate", str(self.run), *self.study.evaluate, *output], self.log)

    def history(self):
        """The rows of `log.csv`."""
        return read_history(self.run)

    def figures(self):
        """The results by name, or None if it is not finished."""
        if not self.scores.exists():
            return None
        history, scores = self.history(), flat(read_json(self.scores))
        found = {
            "minutes": history[-1]["seconds"] / 60,
            "epochs_to_99": reached(history, "val_bleu", 99),
        }
        if "parameters" in self.study.figures:
            weights = read_arrays(self.run / read_config(self.run)["weights"])
            found["parameters"] = sum(weight.size for weight in weights.values()) / 1e6
        found |= {f"last_{name}": value for name, value in history[-1].items()}
        if perplexities := [row["val_perplexity"] for row in history if "val_perplexity" in row]:
            found["lowest_perplexity"] = min(perplexities)
        return found | scores


def p_values(study, trainings):
    """The p of each row of a study, {row: p}; None if the study asks for none.

    A row has none if it or the row that it is compared with is not finished.

    Args:
        study: a `Study`.
        trainings: its `Training`s.
    """
    if study.p_from is None:
        return None
    from training.compare import significance
    from training.evaluate import parser, read_test_set

    done, systems = [one for one in trainings if one.figures()], {}
    if not done:
        return {}
    run = str(done[0].run)
    pairs, _ = read_test_set(parser().parse_args([run, *study.evaluate]), run)
    references = [pair.target for pair in pairs]
    for training in done:
        texts = training.translations.read_text(encoding="utf-8").split("\n")[:-1]
        systems.setdefault(training.row, []).append(texts)
    rows, found = list(study.rows), {}
    for number, row in enumerate(rows[1:]):
        other = rows[0] if study.p_from == "first" else rows[number]
        if row in systems and other in systems:
            found |= significance({other: systems[other], row: systems[row]}, references)
    return found


def flat(scores):
    """The scores by name; the scores of groups have the names `groups.NAME.SCORE`."""
    found = {}
    for name, value in scores.items():
        inner = flat(value) if isinstance(value, dict) else {}
        found |= {f"{name}.{key}": one for key, one in inner.items()} or {name: value}
    return found


def reached(history, name, minimum):
    """The first epoch in which a figure reached a value; the number of epochs plus one if none
    did."""
    epochs = [row["epoch"] for row in history if row.get(name, -math.inf) >= minimum]
    return min(epochs, default=history[-1]["epoch"] + 1)


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.learning.study", __doc__)
    parser.add_argument("study", type=Path, help="its TOML file")
    parser.add_argument("--out", required=True, type=Path, help="a folder for the runs")
    parser.add_argument("--data", type=Path, help="a folder of data that the study names")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="default: all")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="of what is finished")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1], help="default 0 1")
    return parser


def _run(command, options):
    work.require_at_least(command, options, seeds=0)
    if not hasattr(os, "sched_setaffinity"):
        return command.fail("this system cannot bind a process to one core, as Linux can")
    try:
        study = Study(options.study, options.out, options.data)
    except (ValueError, OSError) as error:
        return command.fail(error, 2)
    rows = list(dict.fromkeys(options.rows or study.rows))
    if unknown := sorted(set(rows) - set(study.rows)):
        command.error(f"--rows must be of {', '.join(study.rows)}; got {', '.join(unknown)}")
    # A container is stopped by SIGTERM. As with Ctrl-C, the trainings then save their states.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    first, trainings = study.trainings(rows, dict.fromkeys(options.seeds))
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for training in (*first, *trainings):
            training.begin()
        side_by_side(first)
        side_by_side(trainings)
        if options.picture:
            curve, figure = study.picture
            draw(options.picture, trainings, curve, figure, study.figures[figure][0])
        p = p_values(study, trainings)
    except (ValueError, OSError) as error:
        return command.fail(error)
    print(f"{machine.sentence(machine.describe())}, a core a training\n")
    print(table(trainings, MINUTES | study.figures, p, P_TITLES.get(study.p_from)))
    return 0 if all(training.figures() for training in trainings) else 1


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
