"""Measures what methods against overfitting gain: `python -m benchmarks.ablation RECIPE`.

    python -m benchmarks.ablation multi30k --data data/multi30k --init runs/half \\
        --teacher runs/multi30k --out runs/ablation
    python -m benchmarks.ablation multi30k --data data/multi30k --out runs/sizes --anew

Each row of the table is the recipe with one change, trained with several seeds. Most rows begin
with the published weights of one half-trained run (--init; for example `training.train multi30k
--run runs/half`, stopped by Ctrl-C), because a model that has learned little gains nothing from
methods against overfitting. Their rate rises in 100 steps to --learning-rate and falls to 0. No run
can change its sizes, so sizes are compared with --anew: by the recipe's rate, with fewer steps of
warm-up.

Trainings run in parallel on the CPU, a core each. Each is a run directory in --out with its log
beside it. The recipe's search scores its last weights on the recipe's val. After an interruption,
the same command continues. The training loss includes dropout and noise; for the row `R-Drop 1` it
includes the divergence; in the row `distillation`, half of the targets are the teacher's.

Exit codes: 0 the table is complete; 1 an error of a training or a run; 2 wrong usage; 130
interrupted.
"""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks import machine, work
from benchmarks.learning.trainings import file_name, side_by_side, table
from benchmarks.workers import ENVIRONMENT
from tfformer.config import TransformerConfig
from tfformer.files import read_json, write_json
from tfformer.run import read_config
from tfformer.terminal.command import Parser, main_of
from training.data.reader import Pair
from training.recipe import load_recipe
from training.report.history import read_history

# With --init: the settings that each row changes. A row equal to the recipe is left out, unless
# --rows names it.
FURTHER = {
    "the recipe": {},
    "dropout 0.2": {"model_changes": {"dropout": 0.2}},
    "dropout 0.4": {"model_changes": {"dropout": 0.4}},
    "no weight decay": {"weight_decay": 0.0},
    "label smoothing 0.2": {"smoothing": 0.2},
    "word dropout 0.1": {"word_dropout": 0.1},
    "no subword sampling": {"subword_sampling": 0.0},
    "subword sampling 0.5": {"subword_sampling": 0.5},
    "R-Drop 1": {"r_drop": 1.0},
    "distillation": {},
}
# With --anew.
SIZES = {
    "the recipe": {},
    "6 + 1 layers": {"model_changes": {"num_encoder_layers": 6, "num_decoder_layers": 1}},
}
COLUMNS = {
    "minutes": ("minutes", "{:.0f}"),
    "loss": ("training loss", "{:.2f}"),
    "perplexity": ("perplexity", "{:.3f}"),
    "bleu_multi30k": ("BLEU, literature", "{:.2f}"),
    "bleu": ("BLEU, 13a", "{:.2f}"),
}


def row_recipe(path):
    """The recipe of a row, from its JSON file (see `write_row`).

    If there are translations of the training sources, the corpus has the recipe's pairs, and the
    sources again with these translations: sequence-level distillation (Kim and Rush 2016).
    """
    row = read_json(path)
    recipe = dataclasses.replace(load_recipe(row["recipe"]), **row["settings"])
    if row["translations"] is None:
        return recipe

    def pairs(split, data, source_language, language, report=None):
        spoken = dataclasses.replace(recipe, source_language=source_language, language=language)
        yield from spoken.read(split, data, report)
        if split == "train":
            with open(row["translations"], encoding="utf-8", newline="\n") as lines:
                for pair, line in zip(spoken.read(split, data), lines, strict=True):
                    yield Pair(pair.source, line.removesuffix("\n"))

    return dataclasses.replace(recipe, pairs=pairs)


def write_row(path, row):
    """Writes a row's JSON file, and beside it the recipe file for `training.train`.

    Args:
        path: the JSON file.
        row: {"recipe": its name or file, "settings": all of a `Recipe`, "translations": None or a
            file, ...}; other entries are for the reader.

    Raises:
        ValueError: the file exists and has other content.
    """
    if path.exists() and read_json(path) != row:
        raise ValueError(f"{path} was begun with other settings: choose another --out")
    write_json(path, row)
    path.with_suffix(".py").write_text(
        "from pathlib import Path\n\nfrom benchmarks.ablation import row_recipe\n\n"
        "RECIPE = row_recipe(Path(__file__).with_suffix('.json'))\n"
    )


def changed(recipe, changes):
    """The recipe's settings with some changes. `model_changes` are added to the recipe's own."""
    sizes = recipe.model_changes | changes.get("model_changes", {})
    return recipe.settings() | changes | {"model_changes": sizes}


def settings(recipe, changes, epochs, init=None, peak=None):
    """The settings of a row's trainings.

    Args:
        recipe: the `Recipe`.
        changes: the fields that the row changes, as in `changed`.
        epochs: the number of epochs of a training.
        init: the `config.json` of the initial run, or None.
        peak: the peak of the learning rate with `init`; without it, the recipe's is used.
    """
    found = changed(recipe, changes)
    found |= {"epochs": epochs, "validate_every": epochs, "cores": 1}
    # Settings for the epochs and minutes of a complete training do not apply here. The mean of all
    # weights since the beginning was no better than the last weights.
    found |= {"both_ways": 0, "max_minutes": 0.0, "patience": 0, "average": 1}
    if init:
        # The initial run has already had the first epochs.
        found |= {"r_drop_from": 0, "subword_sampling_from": 0}
        width = init["model"]["d_model"]
        found |= {"warmup_steps": 100, "cooldown": 1.0}
    else:
        width = TransformerConfig.preset(recipe.preset, 261, **found["model_changes"]).d_model
        own = TransformerConfig.preset(recipe.preset, 261, **recipe.model_changes).d_model
        peak = recipe.learning_rate_scale * (own * recipe.warmup_steps) ** -0.5
        found["warmup_steps"] = min(600, recipe.warmup_steps)
    found["learning_rate_scale"] = peak * (width * found["warmup_steps"]) ** 0.5
    return found


class Training:
    """The training of a row with one seed, in separate processes.

    Args:
        file: the JSON file of the row; run directory, log and scores are beside it.
        row: the name of the row.
        seed: the seed.
        data: the folder of the recipe's data, or None.
        init: the initial run, or None.
    """

    def __init__(self, file, row, seed, data, init):
        self.row, self.init = row, init
        self.run = file.with_name(f"{file.stem}-{seed}")
        self.log = file.with_name(f"{self.run.name}.log")
        self.scores = file.with_name(f"{self.run.name}.scores.json")
        self.seed = ["--seed", str(seed)]
        recipe = file.with_suffix(".py")
        self.recipe = [str(recipe), *(["--data", str(data)] if data else [])]

    def finish(self, call):
        """Trains and scores it by `call(arguments, log)`. Finished steps are skipped."""
        if not self.scores.exists():
            train = ["--run", str(self.run), "--resume", *self.seed]
            if self.init and not (self.run / "prepared").exists():
                train += ["--init", str(self.init)]
            call(["training.train", *self.recipe, *train], self.log)
            evaluate = ["--recipe", *self.recipe, "--split", "val", "--output", str(self.scores)]
            call(["training.evaluate", str(self.run), *evaluate], self.log)

    def figures(self):
        """The results by the names of `COLUMNS`, or None if it is not finished."""
        if not self.scores.exists():
            return None
        last = read_history(self.run)[-1]
        return {
            "minutes": last["seconds"] / 60,
            "loss": last["loss"],
            **read_json(self.scores),
        }


def distil(recipe, data, teacher, path):
    """Writes a run's translations of the training sources, unless the file exists."""
    if path.exists():
        return
    sources = "".join(f"{pair.source}\n" for pair in recipe.read("train", data))
    partial = path.with_suffix(".partial")
    with open(partial, "w") as out:
        subprocess.run(
            [sys.executable, "-m", "training.translate", str(teacher)],
            input=sources.encode(), stdout=out, env=os.environ | ENVIRONMENT, check=True,
        )  # fmt: skip
    partial.replace(path)


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.ablation", __doc__)
    parser.add_argument("recipe", help="its name, or a file")
    parser.add_argument("--data", type=Path, help="the folder of the recipe's data")
    parser.add_argument("--out", required=True, type=Path, help="a folder for the runs")
    beginning = parser.add_mutually_exclusive_group(required=True)
    beginning.add_argument("--init", type=Path, metavar="RUN", help="the half-trained run")
    beginning.add_argument("--anew", action="store_true", help="begin with random weights")
    parser.add_argument("--teacher", type=Path, metavar="RUN", help="for the row `distillation`")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2], help="default 1 2")
    parser.add_argument("--epochs", type=int, default=10, help="default 10")
    parser.add_argument(
        "--learning-rate", type=float, default=5e-4, help="with --init; default 0.0005"
    )
    return parser


def _run(command, options):
    work.require_at_least(command, options, epochs=1, seeds=0)
    if not options.learning_rate > 0:
        command.error(f"--learning-rate must be positive, got {options.learning_rate}")
    if not hasattr(os, "sched_setaffinity"):
        return command.fail("this system cannot bind a process to one core, as Linux can")
    known = SIZES if options.anew else FURTHER
    try:
        recipe = load_recipe(options.recipe)
    except ValueError as error:
        command.error(str(error))
    rows = options.rows or default_rows(recipe, known, options.teacher)
    if unknown := sorted(set(rows) - set(known)):
        command.error(f"--rows must be of {', '.join(known)}; got {', '.join(unknown)}")
    if "distillation" in rows and not options.teacher:
        command.error("the row distillation needs --teacher")
    if "distillation" in rows and options.epochs % 2:
        command.error(f"--epochs must be even with the row distillation, got {options.epochs}")
    # A container is stopped by SIGTERM. As with Ctrl-C, the trainings then save their states.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        files = {row: prepare(options, recipe, row, known[row]) for row in dict.fromkeys(rows)}
        trainings = [
            Training(file, row, seed, options.data, options.init)
            for seed in dict.fromkeys(options.seeds)
            for row, file in files.items()
        ]
        side_by_side(trainings)
    except subprocess.CalledProcessError as error:
        return command.fail(f"{error.cmd[2]} ended with {error.returncode}")
    except (ValueError, OSError) as error:
        return command.fail(error)
    print(f"{machine.sentence(machine.describe())}, a core a training\n")
    print(table(trainings, COLUMNS))
    return 0 if all(training.figures() for training in trainings) else 1


def default_rows(recipe, known, teacher):
    """The names of the rows that change something and whose needs are given."""
    rows = []
    for row, changes in known.items():
        # The first row and distillation change no setting, so they are kept.
        if not changes or changed(recipe, changes) != changed(recipe, {}):
            rows.append(row)
    if "distillation" in rows and not teacher:
        rows.remove("distillation")
    return rows


def prepare(options, recipe, row, changes):
    """Writes the files of a row; returns the path of its JSON file."""
    path = options.out / f"{file_name(row)}.json"
    init = read_config(options.init) if options.init else None
    found = {"recipe": options.recipe, "data": str(options.data), "translations": None}
    found["init"] = init and init["weights"]
    epochs = options.epochs
    if row == "distillation":
        translations = options.out / "translations.txt"
        found |= {
            "translations": str(translations.resolve()),
            "teacher": read_config(options.teacher)["weights"],
        }
        # Twice the corpus in the same number of steps.
        epochs //= 2
    found["settings"] = settings(recipe, changes, epochs, init, options.learning_rate)
    write_row(path, found)
    if row == "distillation":
        distil(recipe, options.data, options.teacher, translations)
    return path


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
