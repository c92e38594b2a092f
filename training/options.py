"""The options of `training.train`: from a command line, and a file of options, to a `Recipe`."""

import argparse
import dataclasses
import functools
import math
import sys
import typing
from pathlib import Path

from training import options_file
from training.command import LARGEST, Number, Parser, without_its_package
from training.data.reader import require_files
from training.families import (
    FAMILY_TASKS,
    LABELLED_TASKS,
    PLAIN_TASKS,
    QUESTION_TASKS,
    files_of,
    task_of,
)
from training.own_files import file_pairs, origin_of, plain_texts
from training.recipe import (
    AUTO,
    CHOSEN,
    FOR_SMALL,
    SEARCH,
    SETTLED_BY_INIT,
    VOCABULARY,
    Recipe,
    load_recipe,
    options,
    recipe_names,
    tokens,
)

# The options that name other runs, in the order of `training.inherited.Runs`.
RUNS = ("init", "init_encoder", "init_decoder", "distill")


def parser(text):
    """The command's arguments; every setting of a recipe is an option.

    Args:
        text: the help's first part.
    """
    parser = _Parser("training.train", text)
    parser.add_argument("recipe", nargs="?", help=f"{', '.join(recipe_names())}, or a .py file")
    parser.add_argument("--run", type=Path, help="the run directory")
    parser.add_argument("--config", type=Path, metavar="FILE", help="options in TOML")
    parser.add_argument(
        "--print-config", action="store_true", help="write all options in TOML; train nothing"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on where the run was stopped, if it was begun"
    )
    parser.add_argument(
        "--init", type=Path, metavar="RUN",
        help="fine-tuning: begin with the sizes, the vocabulary and the weights of this run",
    )  # fmt: skip
    for half in ("encoder", "decoder"):
        parser.add_argument(
            f"--init-{half}", type=Path, metavar="RUN",
            help=f"begin with the {half} of this run, also of one of another family, and with its "
            "vocabulary",
        )  # fmt: skip
    parser.add_argument(
        "--distill", type=Path, metavar="RUN",
        help="learn this translator's vocabulary, and what it says of the sources in place of the "
        "targets",
    )  # fmt: skip
    parser.add_argument(
        "--family", choices=FAMILY_TASKS, help="of the model; default the recipe's, or transformer"
    )
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
    corpus.add_argument(
        "--labels", type=Path, nargs="+", metavar="FILE",
        help="the labels of each line of --source, for a classifier; or a TSV has them",
    )  # fmt: skip
    corpus.add_argument("--val-labels", type=Path)
    corpus.add_argument(
        "--text", type=Path, nargs="+", metavar="FILE",
        help="plain text, for a language model: a line is a text, however long; or several files",
    )  # fmt: skip
    corpus.add_argument(
        "--val-text", type=Path, help="for validation; default: 1 line in 20 is held out"
    )
    model = parser.add_argument_group(
        "model", "Each replaces the preset's value, and the recipe's own. A run keeps its own."
    )
    for name, kind, help in model_options():
        _add_option(model, name, kind, f"{help}; default the preset's")
    search = parser.add_argument_group(SEARCH, "What the model is served with.")
    for name, kind, help in search_options():
        _add_option(search, name, kind, help)
    shown, titles = {SEARCH: search}, groups()
    for name, kind, help, default in options():
        title = titles[name]
        if title not in shown:
            text = "Settings: each replaces the recipe's own value."
            shown[title] = parser.add_argument_group(title, text)
        default = "none" if default == "" else default
        _add_option(shown[title], name, kind, f"{help}; default {default}")
    return parser


class _Parser(Parser):
    """A parser whose arguments may stand in a file, `--config`, before those of the line."""

    def parse_args(self, arguments=None, namespace=None):
        words = sys.argv[1:] if arguments is None else list(arguments)
        config = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        config.add_argument("--config", type=Path)
        try:
            path = config.parse_known_args(words)[0].config
        except SystemExit:
            path = None  # without a value: the whole parser says so, in one line
        recipe = None
        if path is not None:
            try:
                before, recipe = options_file.arguments_of(path, self)
            except ValueError as error:
                self.error(str(error))
            # (What follows a list of files is none of them.)
            words = [*before, f"--config={path}", *words]
        found = super().parse_args(words, namespace)
        found.recipe = found.recipe or recipe
        return found


def as_file(recipe, arguments):
    """All that holds, as a file for `--config`.

    What the corpus will decide is left out, and what other runs settle.
    """
    left_out = {*recipe.choose, *settled(arguments)}
    paths = ("run", *RUNS, "data", "source", "target", "val_source", "val_target")
    paths += ("labels", "val_labels", "text", "val_text")
    values = {"files": {"recipe": arguments.recipe, "family": arguments.family}}
    values["files"] |= {name: getattr(arguments, name) for name in paths}
    values["model"] = {} if arguments.init else recipe.model_changes
    for name, title in groups().items():
        if name not in left_out:
            values.setdefault(title, {})[name] = getattr(recipe, name)
    values[SEARCH] |= recipe.search
    return options_file.written(values)


def flag(name):
    """The option of a setting or of a field of the model."""
    return f"--{name.replace('_', '-')}"


def _add_option(group, name, kind, help):
    if kind is bool:
        group.add_argument(
            flag(name), action=argparse.BooleanOptionalAction, default=None, help=help
        )
    else:
        kind_of = _type(name, kind)
        group.add_argument(flag(name), type=kind_of, metavar=kind.__name__.upper(), help=help)


def _type(name, kind):
    """What reads an option: any number that fits a machine's; its own bounds the recipe checks."""
    most = 2**32 - 1 if name == "seed" else LARGEST  # as NumPy's seeds
    whole = Number(int, -most, most)
    if kind is tokens:
        return lambda text: text if text == AUTO else whole(text)
    if kind is float:
        return Number(float, -math.inf, math.inf, nan=True)
    return whole if kind is int else kind


def require_usage(arguments):
    """A ValueError if the arguments do not go together, or a file of the corpus is not there.

    Needs neither Keras nor TensorFlow, so that a slip is said at once.
    """
    for side in ("target", "labels"):
        if getattr(arguments, f"val_{side}") and not arguments.val_source:
            raise ValueError(f"--val-{side} needs --val-source")
        if getattr(arguments, side) and not arguments.source:
            raise ValueError(f"--{side} needs --source")
    if arguments.val_source and not arguments.source:
        raise ValueError("--val-source needs --source")
    if arguments.val_text and not arguments.text:
        raise ValueError("--val-text needs --text")
    own = [name for name in ("source", "text") if getattr(arguments, name)]
    if len(own) > 1:
        raise ValueError("--text is for plain text and --source for pairs: give one")
    if own and arguments.data:
        raise ValueError(
            f"--data is for a recipe's own corpus and --{own[0]} for another: give one"
        )
    if not (own or arguments.recipe or _goes_on(arguments)):
        raise ValueError(f"give a recipe ({', '.join(recipe_names())}) or --source and --target")
    if own and not _goes_on(arguments):
        task = FAMILY_TASKS[arguments.family or "transformer"]
        if arguments.recipe is None:
            _require_files_of(task, arguments)
    _, val_files = _files(arguments)
    require_files(corpus_files(arguments))
    side, targets, val_target = _second_side(arguments)
    if val_files and bool(val_target) != bool(targets):
        raise ValueError(f"--val-source needs --val-{side} where --source has --{side}")


def _require_files_of(task, arguments):
    """Raises a ValueError if the files that are given are of no such task."""
    given = "text" if arguments.text else "source"
    fits = (task in PLAIN_TASKS) == (given == "text")
    for side in ("target", "labels"):
        belongs = (task in LABELLED_TASKS) == (side == "labels") and task not in QUESTION_TASKS
        if getattr(arguments, side) and not belongs:
            given, fits = side, False
    if not fits:
        raise ValueError(
            f"--family {arguments.family or 'transformer'} needs {files_of(task)}, got --{given}"
        )


def _second_side(arguments):
    """What stands beside --source: its option, its files, and that of validation."""
    if arguments.labels or arguments.val_labels:
        return "labels", arguments.labels, arguments.val_labels
    return "target", arguments.target, arguments.val_target


def corpus_files(arguments):
    """All files of the user's own corpus."""
    files, val_files = _files(arguments)
    texts = [*(arguments.text or ()), arguments.val_text]
    return [path for pair in (*files, val_files or (), texts) for path in pair if path]


def _files(arguments):
    """(source, target) of each pair of the corpus's files, and of validation or None."""
    sources = arguments.source or []
    side, targets, val_target = _second_side(arguments)
    targets = targets or [None] * len(sources)
    if len(targets) != len(sources):
        raise ValueError(
            f"--{side} must name as many files as --source, got {len(targets)} and {len(sources)}"
        )
    val_files = (arguments.val_source, val_target) if arguments.val_source else None
    return list(zip(sources, targets, strict=True)), val_files


def read_recipe(arguments):
    """The recipe that the arguments describe. Raises ValueError."""
    require_usage(arguments)
    recipe = load_recipe(arguments.recipe) if arguments.recipe else None
    task = {}
    if arguments.family:
        task = {"task": task_of(arguments.family, arguments.multi_label)}
    if arguments.source or arguments.text:
        corpus = {**_own_corpus(arguments), **task}
        named = corpus.get("task", recipe.task if recipe else None)
        if recipe and (named in PLAIN_TASKS) != bool(arguments.text):
            raise ValueError("--text is for a language model (--family), --source for all others")
        if recipe:
            _require_files_of(named, arguments)
        if recipe:
            recipe = dataclasses.replace(recipe, **corpus)
        else:
            choose = to_choose(arguments)
            # The sizes are checked with those for a small corpus; whether it is, it will say.
            small = {name: FOR_SMALL[name] for name in choose if name in FOR_SMALL}
            recipe = Recipe(**corpus, **small, choose=choose)
    elif recipe:
        origin = f"the recipe `{Path(arguments.recipe).name}`"
        recipe = dataclasses.replace(recipe, origin=recipe.origin or origin, **task)
    else:
        recipe = Recipe(pairs=lambda split, data: (), **task)
    search = recipe.search | given_search(arguments)
    recipe = dataclasses.replace(recipe, **changed_settings(arguments), search=search)
    if _goes_on(arguments):
        # Its model is that of the run, not of the recipe.
        return recipe
    sizes = given_sizes(arguments)
    return dataclasses.replace(recipe, model_changes=recipe.model_changes | sizes)


def _own_corpus(arguments):
    """The fields of a recipe for the user's own files."""
    if arguments.text:
        pairs = functools.partial(plain_texts, arguments.text, arguments.val_text)
        named = [(path,) for path in arguments.text], arguments.val_text and (arguments.val_text,)
        origin = origin_of(*named, unit="lines")
    else:
        files = _files(arguments)
        pairs, origin = functools.partial(file_pairs, *files), origin_of(*files)
    # The languages of a recipe's own corpus are not theirs.
    return {"pairs": pairs, "origin": origin, "source_language": "", "language": ""}


def settled(arguments, begun=False):
    """The settings, and the sizes of the model, that other runs bring, by name; of a run that was
    `begun`, what one to begin with has brought."""
    if arguments.init or begun:
        # Dropout has no weights: that of the run may be replaced, where another run begins.
        # And of what labels a text has, the task depends.
        free = {"dropout", "multi_label"}
        return SETTLED_BY_INIT | {name for name, *_ in model_options()} - free
    halves = [half for half in ("encoder", "decoder") if getattr(arguments, f"init_{half}")]
    found = set()
    if arguments.distill or len(halves) == 2 or (halves and arguments.shared_vocabulary is None):
        found |= VOCABULARY
    if halves:
        options = without_its_package("tfformer.config").NumberedOptions
        found |= {name for name, *_ in fields_of(options) if not name.endswith("dropout")}
        found |= {"num_layers", *(f"num_{half}_layers" for half in halves)}
    return found


def to_choose(arguments):
    """The settings that the corpus decides, of a run that begins with files and no recipe."""
    if arguments.init or _goes_on(arguments):
        return ()
    given = set(changed_settings(arguments))
    if given & {"optimizer", "weight_decay"}:
        given |= {"optimizer", "weight_decay"}  # one is of use with the other
    return tuple(name for name in CHOSEN if name not in given)


def _goes_on(arguments):
    """Whether a run that was begun is resumed."""
    return arguments.resume and arguments.run and (arguments.run / "prepared").exists()


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


def groups():
    """{name of a setting: the group of the help that it stands in}"""
    fields = dataclasses.fields(Recipe)
    return {f.name: f.metadata["group"] for f in fields if "group" in f.metadata}


def model_options():
    """The fields of the models' configurations that are options too: (name, type, help)."""
    config, found = without_its_package("tfformer.config"), {}
    for kind in vars(config).values():
        if isinstance(kind, type) and issubclass(kind, config.StackOptions):
            for name, *rest in fields_of(kind):
                found.setdefault(name, (name, *rest))
    return list(found.values())


def fields_of(configuration):
    """Yields (name, type, help) of a configuration's fields, but for its vocabularies."""
    kinds = typing.get_type_hints(configuration)
    for field in dataclasses.fields(configuration):
        if field.name != "num_labels" and not field.name.endswith("vocabulary_size"):
            # Of `int | None`, int.
            kind = next(iter(typing.get_args(kinds[field.name])), kinds[field.name])
            help, choices = field.metadata.get("help", ""), field.metadata.get("choices")
            yield field.name, kind, f"{help}: {', '.join(choices)}" if choices else help


def search_options():
    """The options of the search that are no settings of their own: (name, type, help)."""
    settings = {field.name for field in dataclasses.fields(Recipe)}
    return [
        (option.name, option.kind, f"{option.help}; default {option.default}")
        for option in without_its_package("tfformer.search.options").KEPT.values()
        if option.name not in settings
    ]
