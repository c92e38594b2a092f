"""Trains a model: `tfformer train`.

    tfformer train dates --run runs/dates
    tfformer train --source train.en --target train.de --run runs/mine
    tfformer train small --source train.en --target train.de --run runs/well
    tfformer train multi30k --source train.en --target train.fr --run runs/french
    tfformer train --family classifier --source a.tsv --columns 2,1 --run runs/topics
    tfformer train --family tagger --source train.conll --run runs/tags
    tfformer train --run runs/mine --resume
    tfformer train --config mine.toml --epochs 7

It trains with a recipe, with your files (two text files or a TSV) and options, or with a recipe's
settings for your files. Without a recipe, the corpus decides size, batches, optimizer, warm-up and
learning rate, unless an option sets them.

--config reads options from a TOML file, one key for each (`source = ["train.en"]`,
`d-model = 256`). Options on the command line override them. --print-config writes such a file with
all effective options, and trains nothing.

A CPU computes a batch in parallel parts, one on each core (--cores). --strategy distributes it over
several devices or machines; training/step/strategy.py describes how to start workers. --accumulate
computes its parts one after the other, to need less memory. Apart from what dropout draws, none of
these options changes what the model learns.

Exit codes: 0 trained; 1 an error of the corpus, the run directory or the disk; 2 wrong usage;
3 the training diverged (NaN); 130 or 143 stopped by Ctrl-C or SIGTERM, the state is saved.
"""

import contextlib
import dataclasses
import gc
import os
import shlex
import sys

from tfformer.terminal.command import CLOSED

from .command_line import options
from .command_line.arguments import RUNS, flag
from .command_line.arguments import parser as parser_of
from .command_line.options import changed_settings, given_search, given_sizes, read_recipe
from .data.reader import CorpusError, require_readable
from .recipe.rules import AUTO
from .report.history import hardly_learned
from .step.allocator import take_huge_pages
from .step.worker import WorkerError, is_chief
from .trainer.lock import alone

# Matrix products by oneDNN. By default, TensorFlow uses them only on processors with AVX-512. It
# reads the variable once, when it is loaded.
ENVIRONMENT = {"TF_ENABLE_ONEDNN_OPTS": "1"}
# These settings determine the prepared corpus, the order of the data, the shapes of the weights and
# the meaning of the optimizer's state.
PREPARED_SETTINGS = (
    "preset profile vocabulary_size vocabulary_kind shared_vocabulary split_digits "
    "max_characters max_tokens max_length_ratio batch_tokens source_language language optimizer "
    "seed new_pieces freeze"
).split()


def parser():
    """The command's arguments. Every setting of a recipe is an option."""
    return parser_of(__doc__)


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda found: _run(command, found), arguments)


def _run(command, arguments):
    if arguments.run is None and not arguments.print_config:
        command.error("the following arguments are required: --run")
    try:
        options.require_usage(arguments)
    except (ValueError, OSError) as error:
        return command.fail(error, 2)
    if arguments.print_config:
        return _print_config(command, arguments)
    # With several workers, the first one checks the paths and reports errors to the others.
    if "TF_CONFIG" not in os.environ:
        if arguments.run.exists() and not arguments.run.is_dir():
            return command.fail(f"--run must be a folder, got the file {arguments.run}")
        try:
            if not (arguments.run / "prepared").exists():
                require_readable(options.corpus_files(arguments))
        except CorpusError as error:
            return command.fail(error)
    return _begin(command, arguments)


def _begin(command, arguments):
    # Here, not above: it imports Keras.
    from tfformer.files import RunError

    prepared = arguments.run / "prepared"
    begun = prepared.exists()
    if begun and arguments.batch_tokens == AUTO:
        # The number was found when the run began, or is found now: the run's settings have it.
        arguments.batch_tokens = None
    others = [name for name in RUNS if getattr(arguments, name)]
    if arguments.init and ("init_encoder" in others or "init_decoder" in others):
        return command.fail("--init loads a whole run, --init-encoder a half: give only one", 2)
    inherited = (prepared / "init.npz").exists()
    if others or inherited:
        given = {**changed_settings(arguments), **given_sizes(arguments)}
        for name in sorted(set(given) & options.settled(arguments, inherited)):
            by = flag(others[0] if others else "init")
            return command.fail(f"{flag(name)} cannot be given with {by}: that run decides it", 2)
    try:
        recipe = read_recipe(arguments)
        if begun and not arguments.strategy:
            # The resuming command need not repeat it.
            from .preparation.prepare import read_settings

            strategy = read_settings(arguments.run, recipe).strategy
            recipe = dataclasses.replace(recipe, strategy=strategy)
        chief = is_chief(recipe.strategy)
    except RunError as error:
        return command.fail(error, 1)
    except (ValueError, OSError) as error:
        return command.fail(error, 2)
    if not begun and (error := _missing_run(arguments, recipe)):
        return command.fail(error, 2)
    if not chief:
        return _train(command, arguments, recipe, begun)
    # With several workers, the others wait for this one and find the run that it has begun.
    if begun and others:
        from .preparation.prepare import read_facts

        try:
            same = read_facts(arguments.run)[1] == _runs(arguments).facts()
        except (ValueError, OSError) as error:
            return _refuse(command, recipe, error, 1)
        if not same:
            error = (
                f"{flag(others[0])} must be as when {arguments.run} was begun, got other runs: "
                "choose another --run"
            )
            return _refuse(command, recipe, error, 2)
    if not begun:
        try:
            # Missing files of the corpus are reported before any work.
            options.require_corpus(arguments, recipe.task)
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


def _missing_run(arguments, recipe):
    """The error if an option needs another run and the command names none, or None."""
    if recipe.new_pieces and not arguments.init:
        return "--new-pieces needs --init: it extends the vocabulary of that run"
    if "teacher_weight" in changed_settings(arguments) and not arguments.teachers:
        return "--teacher-weight needs --teachers: it is their share of the loss"
    if recipe.reward != "none" and not arguments.init:
        return "--reward needs --init: it continues a trained run"
    return None


def _print_config(command, arguments):
    if arguments.resume:
        return command.fail("--print-config cannot be given with --resume", 2)
    try:
        lines = options.as_file(read_recipe(arguments), arguments)
    except (ValueError, OSError) as error:
        return command.fail(error, 2)
    if sys.stdout is None:
        return command.fail(CLOSED)
    print(lines)
    return 0


def _refuse(command, recipe, error, code):
    """Prints the error in one line and returns the code. Other workers print a line and end too."""
    command.fail(error)
    if recipe.strategy == "multiworker":
        from .step.strategy import Strategy

        Strategy(recipe.strategy).any(error)
    return code


def _runs(arguments):
    """The given other runs, as `Runs`."""
    from .preparation.initialisation import Runs

    return Runs(*[getattr(arguments, name) for name in RUNS])


class _Fixed(ValueError):
    """A setting that an existing run cannot change."""


def _goes_on_with(arguments, recipe):
    """The recipe of an existing run with the given settings, and these settings.

    Raises a `_Fixed` if the run was prepared with something else.
    """
    from .preparation.prepare import read_facts, read_settings, read_sizes

    changes, stored = changed_settings(arguments), read_settings(arguments.run, recipe)
    if arguments.family and recipe.task != stored.task:
        raise _Fixed(
            f"--family must be that of {arguments.run}, whose task is {stored.task}, got "
            f"{arguments.family}: choose another --run"
        )
    origin, _ = read_facts(arguments.run)
    own = arguments.recipe or arguments.source or arguments.text
    if own and origin not in (recipe.origin, None):
        raise _Fixed(
            f"{arguments.run} was begun with {origin} and cannot continue with {recipe.origin}: "
            "choose another --run"
        )
    given = {name: changes[name] for name in changes if name in PREPARED_SETTINGS}
    fixed = {name: getattr(stored, name) for name in given}
    if sizes := given_sizes(arguments):
        given |= sizes
        fixed |= read_sizes(arguments.run, stored)
    for name, after in sorted(given.items()):
        if after != (before := fixed.get(name)) and before != AUTO:
            raise _Fixed(
                f"{flag(name)} was {before!r} when the run was begun and cannot become "
                f"{after!r}: choose another --run"
            )
    if search := given_search(arguments):
        changes["search"] = stored.search | search
    return dataclasses.replace(stored, **changes), changes


def _train(command, arguments, recipe, begun):
    # Here, not above: TensorFlow is imported only for a valid command line.
    import tensorflow as tf

    from tfformer.files import RunError

    from .preparation.prepare import read_facts, write_settings
    from .report.progress import Diverged
    from .trainer import fit
    from .trainer.signals import Interrupted

    try:
        if begun:
            recipe, changes = _goes_on_with(arguments, recipe)
        training = fit.Training(arguments.run, recipe, arguments.data, _runs(arguments))
        if recipe.batch_tokens == AUTO:
            tokens = training.largest_batch()
            recipe = dataclasses.replace(training.recipe, batch_tokens=tokens)
            write_settings(arguments.run, recipe)
            # Its model occupies memory of the device.
            del training
            gc.collect()
            training = fit.Training(arguments.run, recipe)
        training.resume()
        if begun and changes and training.strategy.is_chief:
            write_settings(arguments.run, training.recipe)
    except _Fixed as error:
        return command.fail(error, 2)
    except (ValueError, OSError, WorkerError, MemoryError, tf.errors.OpError) as error:
        return command.fail(error, 1)
    try:
        training.run()
    except Interrupted as stop:
        training.say(f"{stop}; saved: continue with --run {arguments.run} --resume")
        return 128 + stop.number
    except Diverged as error:
        return command.fail(f"training diverged: {error}; the last good checkpoint is kept", 3)
    except (RunError, OSError, WorkerError, MemoryError, tf.errors.OpError) as error:
        return command.fail(error, 1)
    task, best = training.task, training.state.progress["best"]
    words = task.figure_words(best[task.figure])
    training.say(f"best model: validation {words}, in {arguments.run}")
    history, (_, facts) = training.state.progress["history"], read_facts(arguments.run)
    if reason := hardly_learned(history, vars(training.recipe), facts):
        words = ["tfformer", "train", "--run", str(arguments.run), "--resume"]
        words += ["--epochs", str(2 * training.recipe.epochs)]
        if training.recipe.max_minutes:
            words += ["--max-minutes", f"{2 * training.recipe.max_minutes:g}"]
        training.say(f"warning: the model has hardly learned: {reason}: {shlex.join(words)}")
    return 0


def prepare_process(program):
    """Sets what a process needs before it imports TensorFlow.

    Args:
        program: the name of the program in the process's command line.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    take_huge_pages(program)


if __name__ == "__main__":
    prepare_process(__spec__.name if __spec__ else "")
    sys.exit(main())
