"""Trains a model: `python -m training.train`.

With a recipe, with two text files (or one TSV) and options, or with a recipe's settings for files.
Without a recipe, size, warm-up and rate are chosen from the corpus where no option gives them:

    python -m training.train dates --run runs/dates
    python -m training.train --source train.en --target train.de --run runs/mine
    python -m training.train small --source train.en --target train.de --run runs/well
    python -m training.train multi30k --source train.en --target train.fr --run runs/french
    python -m training.train --run runs/mine --resume

A CPU computes a batch in parts, a core each (--cores). --strategy spreads it over several devices
or machines, --accumulate computes it in parts one after the other, in less memory. But for what
dropout draws, none of them changes what is learned (training/step/strategy.py says how workers are
started).

Exit codes: 0 trained; 1 the corpus, the run directory or the disk is at fault; 2 wrong usage;
3 the training diverged (NaN); 130 or 143 stopped by Ctrl-C or SIGTERM, the state saved.
"""

import argparse
import contextlib
import dataclasses
import functools
import gc
import itertools
import os
import sys
import zlib
from pathlib import Path

from training.command import Parser
from training.data.reader import CorpusError, is_blank, read_pairs, require_files
from training.lock import alone
from training.recipe import (
    AUTO,
    CHOSEN,
    SETTLED_BY_INIT,
    Recipe,
    load_recipe,
    model_options,
    options,
    recipe_names,
    search_options,
)
from training.step.allocator import take_huge_pages
from training.step.worker import WorkerError, is_chief

HELD_OUT = 1000
# oneDNN's products of matrices, which TensorFlow has but uses by itself only on processors with
# AVX-512. It asks once, when it is loaded.
ENVIRONMENT = {"TF_ENABLE_ONEDNN_OPTS": "1"}
# What the prepared corpus, the order of the data, the shapes of the weights and what the state of
# the optimizer means depend on.
PREPARED_SETTINGS = {
    "preset",
    "vocabulary_size",
    "vocabulary_kind",
    "shared_vocabulary",
    "split_digits",
    "max_characters",
    "max_tokens",
    "max_length_ratio",
    "batch_tokens",
    "source_language",
    "language",
    "optimizer",
    "seed",
    "new_pieces",
    "freeze",
}


def held_out(pair):
    """Whether a pair may be held out for validation, by its source alone: 1 source in 20."""
    return zlib.crc32(pair.source.encode()) % 20 == 0 and not is_blank(pair.source)


def _held_out_once(pairs):
    """The pairs that may be held out: none that is dropped, and of a source the first alone.

    Raises:
        CorpusError: of some pairs none may be.
    """
    taken, pair = set(), None
    for pair in pairs:
        if held_out(pair) and pair.source not in taken and not is_blank(pair.target):
            taken.add(pair.source)
            yield pair
    if pair and not taken:
        raise CorpusError(
            "none of the pairs could be held out for validation, as 1 source in 20 is: give "
            "--val-source and --val-target"
        )


def file_pairs(files, val_files, split, data, report=None):
    """The pairs of the user's files, (source, target) each, or (TSV, None).

    Without validation files 1 pair in 20, at most 1,000, is held out of the corpus; and with it
    every other pair of the same source, so that none is on both sides. What is counted is then
    counted of training and validation together, for training.
    """

    def corpus(report=None):
        return itertools.chain.from_iterable(read_pairs(*pair, report=report) for pair in files)

    if val_files:
        return read_pairs(*val_files, report=report) if split == "val" else corpus(report)
    if split == "val":
        return itertools.islice(_held_out_once(corpus()), HELD_OUT)
    sources = {pair.source for pair in file_pairs(files, val_files, "val", data)}
    return (pair for pair in corpus(report) if pair.source not in sources)


def origin_of(files, val_files):
    """The user's files in words: their names, not the folders that they lie in."""

    def names(paths):
        return " and ".join(f"`{path.name}`" for path in paths if path)

    corpus = ", ".join(map(names, files))
    if val_files:
        return f"{corpus}, for validation {names(val_files)}"
    return f"{corpus}, of which up to {HELD_OUT:,} pairs are held out for validation"


def parser():
    """The command's arguments; every setting of a recipe is an option."""
    parser = Parser("training.train", __doc__)
    parser.add_argument("recipe", nargs="?", help=f"{', '.join(recipe_names())}, or a .py file")
    parser.add_argument("--run", required=True, type=Path, help="the run directory")
    parser.add_argument(
        "--resume", action="store_true", help="go on where the run was stopped, if it was begun"
    )
    parser.add_argument(
        "--init", type=Path, metavar="RUN",
        help="fine-tuning: begin with the sizes, the vocabulary and the weights of this run",
    )  # fmt: skip
    corpus = parser.add_argument_group("corpus")
    corpus.add_argument("--data", type=Path, help="the folder of the recipe's data")
    corpus.add_argument(
        "--source", type=Path, nargs="+", metavar="FILE",
        help="a text file, or a TSV without --target; or several, one after the other",
    )  # fmt: skip
    corpus.add_argument(
        "--target", type=Path, nargs="+", metavar="FILE", help="its translation, line by line"
    )
    corpus.add_argument(
        "--val-source", type=Path, help="for validation; default: 1 pair in 20 is held out"
    )
    corpus.add_argument("--val-target", type=Path)
    model = parser.add_argument_group(
        "model", "Each replaces the preset's value, and the recipe's own. A run keeps its own."
    )
    for name, kind, help in model_options():
        _add_option(model, name, kind, f"{help}; default the preset's")
    search = parser.add_argument_group("search", "What the model is served with, besides the beam.")
    for name, kind, help in search_options():
        _add_option(search, name, kind, help)
    settings = parser.add_argument_group("settings", "Each replaces the recipe's own value.")
    for name, kind, help, default in options():
        _add_option(settings, name, kind, f"{help}; default {default}")
    return parser


def _flag(name):
    """The option of a setting or of a field of the model."""
    return f"--{name.replace('_', '-')}"


def _add_option(group, name, kind, help):
    if kind is bool:
        group.add_argument(
            _flag(name), action=argparse.BooleanOptionalAction, default=None, help=help
        )
    else:
        group.add_argument(_flag(name), type=kind, metavar=kind.__name__.upper(), help=help)


def read_recipe(arguments):
    """The recipe that the arguments describe. Raises ValueError."""
    if arguments.val_target and not arguments.val_source:
        raise ValueError("--val-target needs --val-source")
    if (arguments.target or arguments.val_source) and not arguments.source:
        raise ValueError("--target and --val-source need --source")
    if arguments.source and arguments.data:
        raise ValueError("--data is for a recipe's own corpus and --source for another: give one")
    recipe = load_recipe(arguments.recipe) if arguments.recipe else None
    if arguments.source:
        targets = arguments.target or [None] * len(arguments.source)
        if len(targets) != len(arguments.source):
            raise ValueError(
                "--target must name as many files as --source, got "
                f"{len(targets)} and {len(arguments.source)}"
            )
        files = list(zip(arguments.source, targets, strict=True))
        val_files = (arguments.val_source, arguments.val_target) if arguments.val_source else None
        require_files(path for pair in (*files, val_files or ()) for path in pair if path)
        if val_files and bool(arguments.val_target) != bool(arguments.target):
            raise ValueError("--val-source needs --val-target where --source has --target")
        corpus = {
            "pairs": functools.partial(file_pairs, files, val_files),
            "origin": origin_of(files, val_files),
            # Those of the recipe's own corpus are not theirs.
            "source_language": "",
            "language": "",
        }
        if recipe:
            recipe = dataclasses.replace(recipe, **corpus)
        else:
            # The run of --init settles the most of it.
            given = set(CHOSEN) if arguments.init else set(changed_settings(arguments))
            choose = tuple(name for name in CHOSEN if name not in given)
            # The sizes are checked with the smallest preset; which it is, the corpus decides.
            smallest = {"preset": "tiny"} if "preset" in choose else {}
            recipe = Recipe(**corpus, **smallest, choose=choose)
    elif recipe:
        origin = f"the recipe `{Path(arguments.recipe).name}`"
        recipe = dataclasses.replace(recipe, origin=recipe.origin or origin)
    elif arguments.resume and (arguments.run / "prepared").exists():
        recipe = Recipe(pairs=lambda split, data: ())
    else:
        raise ValueError(f"give a recipe ({', '.join(recipe_names())}) or --source and --target")
    search = recipe.search | given_search(arguments)
    recipe = dataclasses.replace(recipe, **changed_settings(arguments), search=search)
    if arguments.resume and (arguments.run / "prepared").exists():
        # Its model is that of the run, not of the recipe.
        return recipe
    sizes = given_sizes(arguments)
    for name, value in (("tie_embeddings", "all"), ("copy", True)):
        if sizes.get(name) == value and not recipe.shared_vocabulary:
            given = _flag(name) if value is True else f"{_flag(name)} {value}"
            raise ValueError(f"{given} needs one vocabulary for both sides, got two")
    return dataclasses.replace(recipe, model_changes=recipe.model_changes | sizes)


def changed_settings(arguments):
    """The settings that were given as options."""
    return _given(arguments, options())


def given_search(arguments):
    """The options of the search that were given."""
    return _given(arguments, search_options())


def given_sizes(arguments):
    """The fields of the model's configuration that were given as options."""
    return _given(arguments, model_options())


def _given(arguments, fields):
    values = {name: getattr(arguments, name) for name, *_ in fields}
    return {name: value for name, value in values.items() if value is not None}


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda options: _run(command, options), arguments)


def _run(command, arguments):
    from tfformer.files import RunError

    prepared = arguments.run / "prepared"
    begun = prepared.exists()
    if begun and arguments.batch_tokens == AUTO:
        # Found when the run was begun, or to be found now: both are in its settings.
        arguments.batch_tokens = None
    if arguments.init or (prepared / "init.json").exists():
        # Dropout has no weights: that of the run may be replaced, where another run begins.
        settled = set(given_sizes(arguments)) - {"dropout"}
        for name in sorted((set(changed_settings(arguments)) & SETTLED_BY_INIT) | settled):
            flag = _flag(name)
            return command.fail(f"{flag} cannot be given with --init, whose run settles it", 2)
    try:
        recipe = read_recipe(arguments)
        if begun and not arguments.strategy:
            # The command that a run is resumed with need not repeat it.
            from training.prepare import read_settings

            strategy = read_settings(arguments.run, recipe).strategy
            recipe = dataclasses.replace(recipe, strategy=strategy)
        chief = is_chief(recipe.strategy)
    except RunError as error:
        return command.fail(error, 1)
    except (ValueError, OSError) as error:
        return command.fail(error, 2)
    if recipe.new_pieces and not arguments.init and not begun:
        return command.fail("--new-pieces needs --init, whose vocabulary it extends", 2)
    if not chief:
        return _train(command, arguments, recipe, begun)
    # Of several workers the others wait for this one, and find what it has begun just now.
    if begun and arguments.init:
        error = f"--init is for a run that begins; {arguments.run} was begun"
        return _refuse(command, recipe, error, 2)
    if not begun:
        try:
            # What is missing of its corpus is said now; nothing is read yet.
            recipe.read("val", arguments.data)
        except (ValueError, OSError) as error:
            at_fault = isinstance(error, (CorpusError, OSError))
            return _refuse(command, recipe, error, 1 if at_fault else 2)
    if begun and not arguments.resume:
        error = f"{arguments.run} holds a training: add --resume, or choose another --run"
        return _refuse(command, recipe, error, 2)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone(arguments.run))
        except OSError as error:
            return _refuse(command, recipe, error, 1)
        return _train(command, arguments, recipe, begun)


def _refuse(command, recipe, error, code):
    """One line, and the exit code; the other workers, if there are any, end with a line too."""
    command.fail(error)
    if recipe.strategy == "multiworker":
        from training.step.strategy import Strategy

        Strategy(recipe.strategy).any(error)
    return code


def _train(command, arguments, recipe, begun):
    # Here, not above: TensorFlow begins its work only for a command line that makes sense.
    from tfformer.files import RunError
    from training import fit
    from training.interrupt import Interrupted
    from training.prepare import read_origin, read_settings, read_sizes, write_settings
    from training.report.progress import Diverged

    try:
        if begun:
            changes = changed_settings(arguments)
            origin = read_origin(arguments.run)
            if (arguments.recipe or arguments.source) and origin not in (recipe.origin, None):
                return command.fail(
                    f"{arguments.run} was begun with {origin} and goes on with it, not with "
                    f"{recipe.origin}: choose another --run",
                    2,
                )
            recipe = read_settings(arguments.run, recipe)
            given = {name: changes[name] for name in changes if name in PREPARED_SETTINGS}
            fixed = {name: getattr(recipe, name) for name in given}
            if sizes := given_sizes(arguments):
                given |= sizes
                fixed |= read_sizes(arguments.run, recipe)
            for name, after in sorted(given.items()):
                if after != (before := fixed[name]) and before != AUTO:
                    return command.fail(
                        f"{_flag(name)} was {before!r} when the run was begun and "
                        f"cannot become {after!r}: choose another --run",
                        2,
                    )
            if search := given_search(arguments):
                changes["search"] = recipe.search | search
            recipe = dataclasses.replace(recipe, **changes)
        training = fit.Training(arguments.run, recipe, arguments.data, arguments.init)
        if recipe.batch_tokens == AUTO:
            tokens = training.largest_batch()
            recipe = dataclasses.replace(training.recipe, batch_tokens=tokens)
            write_settings(arguments.run, recipe)
            # Its model takes room on the device.
            del training
            gc.collect()
            training = fit.Training(arguments.run, recipe)
        training.resume()
        if begun and changes and training.strategy.is_chief:
            write_settings(arguments.run, training.recipe)
    except (ValueError, OSError, WorkerError, MemoryError) as error:
        return command.fail(error, 1)
    try:
        training.run()
    except Interrupted as stop:
        training.say(f"{stop}; saved: go on with --run {arguments.run} --resume")
        return 128 + stop.number
    except Diverged as error:
        return command.fail(f"training diverged: {error}; the last good checkpoint is kept", 3)
    except (RunError, OSError, WorkerError, MemoryError) as error:
        return command.fail(error, 1)
    task, best = training.task, training.state.progress["best"]
    words = task.figure_words(best[task.figure])
    training.say(f"best model: validation {words}, in {arguments.run}")
    return 0


if __name__ == "__main__":
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    take_huge_pages(__spec__.name if __spec__ else "")
    sys.exit(main())
