"""Checks the arguments of `training.train` and converts them to a `Recipe`."""

import dataclasses
import functools
from pathlib import Path

from tfformer.config import NumberedOptions

from ..data.reader import require_files, require_lengths
from ..recipe import (
    CHOSEN,
    FOR_SMALL,
    SEARCH,
    SETTLED_BY_INIT,
    VOCABULARY,
    Recipe,
    families,
    load_recipe,
    options,
    recipe_names,
    require_recipe,
)
from ..recipe.rules import require_teachable
from . import options_file
from .arguments import RUNS, fields_of, groups, model_options, search_options
from .own_files import file_pairs, origin_of, pairs_of, plain_texts

# (option, the option that it needs).
NEEDS = (
    ("val_target", "val_source"), ("target", "source"), ("val_labels", "val_source"),
    ("labels", "source"), ("alignments", "source"), ("val_source", "source"), ("val_text", "text"),
)  # fmt: skip


def as_file(recipe, arguments):
    """The text of a file for `--config`. It has all effective options, except those that other runs
    or the corpus decide."""
    left_out = {*recipe.choose, *settled(arguments)}
    if not arguments.teachers:
        left_out.add("teacher_weight")
    paths = ("run", *RUNS, "data", "source", "target", "val_source", "val_target")
    paths += ("columns", "alignments", "labels", "val_labels", "text", "val_text")
    values = {"files": {"recipe": arguments.recipe, "family": arguments.family}}
    values["files"] |= {name: getattr(arguments, name) for name in paths}
    values["model"] = {} if arguments.init else recipe.model_changes
    for name, title in groups().items():
        if name not in left_out:
            values.setdefault(title, {})[name] = getattr(recipe, name)
    values[SEARCH] |= recipe.search
    return options_file.written(values)


def require_usage(arguments):
    """Raises a ValueError if the arguments cannot be combined, or a corpus file does not exist.

    Needs neither Keras nor TensorFlow, so that mistakes are reported at once.
    """
    for name, needed in NEEDS:
        if getattr(arguments, name) and not getattr(arguments, needed):
            raise ValueError(f"--{name} needs --{needed}".replace("_", "-"))
    if arguments.columns and (arguments.target or arguments.labels or not arguments.source):
        raise ValueError("--columns needs a --source without --target or --labels")
    own = [name for name in ("source", "text") if getattr(arguments, name)]
    if len(own) > 1:
        raise ValueError("--text is for plain text, --source for pairs: give only one")
    if own and arguments.data:
        raise ValueError(
            f"--data is for a recipe's own corpus, --{own[0]} for your files: give only one"
        )
    if not (own or arguments.recipe or _goes_on(arguments)):
        raise ValueError(f"give a recipe ({', '.join(recipe_names())}) or --source and --target")
    if arguments.recipe:
        require_recipe(arguments.recipe)
    if own and not _goes_on(arguments):
        task = families.FAMILY_TASKS[arguments.family or "transformer"]
        if arguments.recipe is None:
            _require_files_of(task, arguments)
    _, val_files = _files(arguments)
    require_files(corpus_files(arguments))
    side, targets, val_target = _second_side(arguments)
    if val_files and bool(val_target) != bool(targets):
        raise ValueError(f"--val-source needs --val-{side} if --source has --{side}")


def _require_files_of(task, arguments):
    """Raises a ValueError if the given files do not fit the task."""
    given = "text" if arguments.text else "source"
    fits = (task in families.PLAIN_TASKS) == (given == "text")
    for side in ("target", "labels"):
        belongs = (task in families.LABELLED_TASKS) == (side == "labels")
        belongs = belongs and task not in families.QUESTION_TASKS
        if getattr(arguments, side) and not belongs:
            given, fits = side, False
    if not fits:
        family, files = arguments.family or "transformer", families.files_of(task)
        raise ValueError(f"--family {family} needs {files}, got --{given}")


def _second_side(arguments):
    """The second side beside --source: name of its option, its files, its validation file."""
    if arguments.labels or arguments.val_labels:
        return "labels", arguments.labels, arguments.val_labels
    return "target", arguments.target, arguments.val_target


def require_corpus(arguments, task):
    """Raises a CorpusError if a file of the user's corpus has no lines for the `task`, or if two
    files that belong together have different numbers of lines."""
    files, val_files = _files(arguments)
    for source, target, *_ in (*files, *([val_files] if val_files else ())):
        if target is not None:
            require_lengths(source, target)
        else:
            next(pairs_of(source, **_columns(arguments, task)), None)


def corpus_files(arguments):
    """All files of the user's corpus."""
    files, val_files = _files(arguments)
    texts = [*(arguments.text or ()), arguments.val_text]
    return [path for pair in (*files, val_files or (), texts) for path in pair if path]


def _files(arguments):
    """(source, target, alignments) for each part of the corpus, each a file or None; and (source,
    target) for validation, or None."""
    sources = arguments.source or []
    side, targets, val_target = _second_side(arguments)
    sides = []
    for name, files in ((side, targets), ("alignments", arguments.alignments)):
        sides.append(files or [None] * len(sources))
        if len(sides[-1]) != len(sources):
            raise ValueError(
                f"--{name} must name as many files as --source, got {len(files)} and {len(sources)}"
            )
    val_files = (arguments.val_source, val_target) if arguments.val_source else None
    return list(zip(sources, *sides, strict=True)), val_files


def _columns(arguments, task):
    """The keyword arguments of `pairs_of` for a file of columns."""
    return {"columns": arguments.columns, "tagged": task in families.TAGGED_TASKS}


def read_recipe(arguments):
    """Converts the arguments to a recipe. Raises a ValueError if they are not valid."""
    require_usage(arguments)
    recipe = load_recipe(arguments.recipe) if arguments.recipe else None
    task = {}
    if arguments.family:
        task = {"task": families.task_of(arguments.family, arguments.multi_label)}
    if arguments.source or arguments.text:
        named = task.get("task", recipe.task if recipe else None)
        corpus = {**_own_corpus(arguments, named), **task}
        if recipe and (named in families.PLAIN_TASKS) != bool(arguments.text):
            raise ValueError("--text is for a language model (--family), --source for all others")
        if recipe:
            _require_files_of(named, arguments)
        if recipe:
            recipe = dataclasses.replace(recipe, **corpus)
        else:
            choose = to_choose(arguments)
            # The given sizes are first checked with the values for a small corpus. The size of the
            # corpus is known later.
            small = {name: FOR_SMALL[name] for name in choose if name in FOR_SMALL}
            recipe = Recipe(**corpus, **small, choose=choose)
    elif recipe:
        origin = f"the recipe `{Path(arguments.recipe).name}`"
        recipe = dataclasses.replace(recipe, origin=recipe.origin or origin, **task)
    else:
        recipe = Recipe(pairs=lambda split, data: (), **task)
    search = recipe.search | given_search(arguments)
    recipe = dataclasses.replace(recipe, **changed_settings(arguments), search=search)
    if arguments.teachers:
        require_teachable(recipe)
    if arguments.alignments:
        _require_use_of_links(recipe, arguments)
    if _goes_on(arguments):
        # The model is that of the run, not of the recipe.
        return recipe
    sizes = given_sizes(arguments)
    return dataclasses.replace(recipe, model_changes=recipe.model_changes | sizes)


def _require_use_of_links(recipe, arguments):
    """Raises a ValueError if the training cannot use links between the words of its pairs."""
    if not recipe.guided_attention:
        raise ValueError("--alignments needs --guided-attention, the weight of their loss")
    others = {
        "--distill": arguments.distill,
        "--reward": recipe.reward != "none",
        "--both-ways": recipe.both_ways,
        "--strategy tpu": recipe.strategy == "tpu",
    }
    for option, given in others.items():
        if given:
            raise ValueError(f"--alignments cannot be given with {option}, which changes the pairs")


def _own_corpus(arguments, task):
    """The fields of a recipe for the user's own files and a `task`."""
    if arguments.text:
        pairs = functools.partial(plain_texts, arguments.text, arguments.val_text)
        named = [(path,) for path in arguments.text], arguments.val_text and (arguments.val_text,)
        origin = origin_of(*named, unit="lines")
    else:
        files = _files(arguments)
        side, *_ = _second_side(arguments)
        read_as = _columns(arguments, task)
        pairs = functools.partial(file_pairs, *files, side=side, **read_as)
        origin = origin_of(*files)
    # The languages of the recipe's own corpus do not apply to these files.
    return {"pairs": pairs, "origin": origin, "source_language": "", "language": ""}


def settled(arguments, begun=False):
    """The names of settings and model sizes that other runs decide. `begun`: the run exists
    already, so its own model decides, as with --init."""
    if arguments.init or begun:
        # Dropout has no weights, so a new run may change it. `multi_label` decides the task.
        free = {"dropout", "multi_label"}
        return SETTLED_BY_INIT | {name for name, *_ in model_options()} - free
    halves = [half for half in ("encoder", "decoder") if getattr(arguments, f"init_{half}")]
    found = set()
    told = arguments.distill or arguments.teachers
    if told or len(halves) == 2 or (halves and arguments.shared_vocabulary is None):
        found |= VOCABULARY
    if halves:
        found |= {name for name, *_ in fields_of(NumberedOptions) if not name.endswith("dropout")}
        found |= {"profile", "num_layers", *(f"num_{half}_layers" for half in halves)}
    return found


def to_choose(arguments):
    """The settings that the corpus decides, for a run from files without a recipe."""
    if arguments.init or _goes_on(arguments):
        return ()
    given = set(changed_settings(arguments))
    if given & {"optimizer", "weight_decay"}:
        given |= {"optimizer", "weight_decay"}  # the two values belong together
    return tuple(name for name in CHOSEN if name not in given)


def _goes_on(arguments):
    """Whether an existing run is resumed."""
    return arguments.resume and arguments.run and (arguments.run / "prepared").exists()


def changed_settings(arguments):
    """The settings that were given as options."""
    return _given(arguments, options())


def given_search(arguments):
    """The search options that were given."""
    return _given(arguments, search_options())


def given_sizes(arguments):
    """The fields of the model's configuration that were given as options."""
    return _given(arguments, model_options())


def _given(arguments, fields):
    values = {name: getattr(arguments, name) for name, *_ in fields}
    return {name: value for name, value in values.items() if value is not None}
