"""The arguments of `training.train`. Every setting of a recipe is an option."""

import argparse
import dataclasses
import functools
import math
import os
import sys
import typing
from pathlib import Path

from tfformer import config
from tfformer.config.search_options import KEPT
from tfformer.terminal.command import LARGEST, Number, Parser

from ..data.reader import SOURCE_NAMES, TARGET_NAMES, column_numbers
from ..recipe import CHOSEN, SEARCH, Recipe, options, recipe_names, tokens
from ..recipe.families import FAMILY_TASKS
from ..recipe.rules import AUTO
from . import options_file

# The options that name other runs, in the order of `training.preparation.initialisation.Runs`.
RUNS = ("init", "init_encoder", "init_decoder", "distill", "teachers")


# The options that `--help` shows; `--help-all` shows all.
COMMON = {
    "help", "help_all", "recipe", "run", "config", "print_config", "resume", "init", "family",
    "source", "target", "columns", "labels", "text", "val_source", "val_target", "preset",
    "vocabulary_size", "epochs", "max_minutes", "batch_tokens", "seed", "cores",
}  # fmt: skip


def parser(text):
    """The parser of the command; `text` is the first part of its help."""
    # With several workers, only the first one reads other runs.
    parser = _Parser("training.train", text, reads=() if "TF_CONFIG" in os.environ else RUNS)
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="describe every option")
    parser.add_argument("recipe", nargs="?", help=f"{', '.join(recipe_names())}, or a .py file")
    parser.add_argument("--run", type=Path, help="the run directory")
    parser.add_argument("--config", type=Path, metavar="FILE", help="options in TOML")
    parser.add_argument(
        "--print-config", action="store_true", help="write all options in TOML; train nothing"
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue a stopped run; begin it if it is new"
    )
    _add_runs(parser)
    parser.add_argument(
        "--family",
        choices=FAMILY_TASKS,
        help="the model's family; default the recipe's, or transformer",
    )
    _add_files(parser.add_argument_group("corpus"))
    _add_tables(parser)
    return parser


def _add_runs(parser):
    """Adds the options that name other runs."""
    of_run = functools.partial(parser.add_argument, type=Path, metavar="RUN")
    text = "fine-tuning: begin with the sizes, the vocabulary and the weights of this run"
    of_run("--init", help=text)
    text = "begin with the {} and the vocabulary of this run, whose family may differ"
    for half in ("encoder", "decoder"):
        of_run(f"--init-{half}", help=text.format(half))
    text = "use this translator's vocabulary, and learn its translations instead of the targets"
    of_run("--distill", help=text)
    text = "use the vocabulary of these translators; besides the targets, learn the mean of their "
    text += "distributions of each next token, see --teacher-weight"
    of_run("--teachers", nargs="+", help=text)


def _add_files(corpus):
    """Adds the options that name the files of a corpus."""
    corpus.add_argument(
        "--data", type=Path, metavar="FOLDER", help="the folder of the recipe's data"
    )
    of_file = functools.partial(corpus.add_argument, type=Path, metavar="FILE")
    of_files = functools.partial(of_file, nargs="+")
    text = "one or more text files; TSV files without --target; for a tagger also CoNLL files"
    of_files("--source", help=text)
    add_columns(corpus)
    of_files("--target", help="the translations, line by line")
    text = "links between the words of each pair, in Pharaoh format (0-0 1-2), for "
    of_files("--alignments", help=f"{text}--guided-attention")
    of_file("--val-source", help="for validation; default: 1 pair in 20 is held out")
    of_file("--val-target", help="the translations of --val-source")
    text = "the labels of each line of --source, for a classifier or a tagger without a TSV"
    of_files("--labels", help=text)
    of_file("--val-labels", help="the labels of --val-source")
    text = "one or more plain text files, for a language model: each line is a text of any length"
    of_files("--text", help=text)
    of_file("--val-text", help="for validation; default: 1 line in 20 is held out")


def add_columns(parser):
    """Adds the option for the columns of a TSV or CoNLL file."""
    parser.add_argument(
        "--columns", type=_columns, metavar="A,B",
        help="TSV: the columns of source (or text) and target (or label), by number or by their "
        "names in the first line: 2,1 or review,stars; a third is the group; default 1,2. CoNLL: "
        "the numbers of word and tag; default for CoNLL-U 2,4, otherwise the first and the last",
    )  # fmt: skip


def _columns(text):
    """Parses --columns. Whether a file has them is checked when its first line is read."""
    names = [name.strip() for name in text.split(",")]
    different = set(column_numbers(",".join(names)) or names)
    empty = any(not name.strip("0") for name in names)
    if not 2 <= len(names) == len(different) <= 3 or empty:
        rule = "be two or three different columns, such as 2,1 or review,stars"
        raise argparse.ArgumentTypeError(f"must {rule}, got {text}")
    if names[0].lower() in TARGET_NAMES - {"target"} and names[1].lower() in SOURCE_NAMES:
        rule = f"name the column of the text first: {names[1]},{names[0]}"
        raise argparse.ArgumentTypeError(f"must {rule}; got {text}")
    return ",".join(names)


def _add_tables(parser):
    """Adds the options of the model, the search and the recipe from their tables."""
    model = parser.add_argument_group(
        "model", "Default: the value of the preset or recipe. A resumed run keeps its own."
    )
    for name, kind, help, choices in model_options():
        _add_option(model, name, kind, help, choices)
    search = parser.add_argument_group(SEARCH, "Defaults of the search when the model is served.")
    for name, kind, help in search_options():
        _add_option(search, name, kind, help)
    shown, titles = {SEARCH: search}, groups()
    for name, kind, help, default in options():
        title = titles[name]
        if title not in shown:
            text = "Each replaces the recipe's value."
            shown[title] = parser.add_argument_group(title, text)
        default = "none" if default == "" else default
        if name in CHOSEN:
            default = f"{default}; without a recipe, chosen from the corpus"
        _add_option(shown[title], name, kind, f"{help}; default {default}")


class _HelpAll(argparse.Action):
    """Prints the help with all options."""

    def __call__(self, parser, *_):
        parser.common_only = False
        parser.print_help()
        parser.exit()


class _Parser(Parser):
    """A parser that also reads arguments from a file, `--config`, before the command line.

    Attributes:
        common_only: whether the help leaves out options that are not in `COMMON`.
    """

    common_only = True

    def format_usage(self):
        return f"usage: {self.prog} [recipe] --run RUN [options]\n"

    def format_help(self):
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        for group in self._action_groups:
            shown = [a for a in group._group_actions if not self.common_only or a.dest in COMMON]
            if shown:
                formatter.start_section(group.title)
                formatter.add_text(group.description)
                formatter.add_arguments(shown)
                formatter.end_section()
        if self.common_only:
            formatter.add_text("--help-all describes every option of models, search and training.")
        return f"{self.format_usage()}\n{formatter.format_help()}"

    def parse_args(self, arguments=None, namespace=None):
        words = sys.argv[1:] if arguments is None else list(arguments)
        config = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        config.add_argument("--config", type=Path)
        try:
            path = config.parse_known_args(words)[0].config
        except SystemExit:
            path = None  # --config without a value: the full parser reports it in one line
        recipe = None
        if path is not None:
            try:
                before, recipe = options_file.arguments_of(path, self)
            except ValueError as error:
                self.error(str(error))
            # `--config` ends a list of files in `before`, so that it takes none of `words`.
            words = [*before, f"--config={path}", *words]
        found = super().parse_args(words, namespace)
        if recipe and recipe.endswith(".py") and found.recipe is None:
            self.error(
                f"--config {path} names the recipe {recipe}, which is a program: to run it, name "
                "it on the command line too"
            )
        found.recipe = found.recipe or recipe
        if found.print_config:
            self.reads = ()  # other runs are not read
        return found


def flag(name):
    """The option for a setting or a field of the model's configuration."""
    return f"--{name.replace('_', '-')}"


# What an option's value is called in the help.
METAVARS = {int: "N", float: "X", str: "NAME"}


def _add_option(group, name, kind, help, choices=None):
    if kind is bool:
        group.add_argument(
            flag(name), action=argparse.BooleanOptionalAction, default=None, help=help
        )
    else:
        kind_of = _type(name, kind)
        metavar = METAVARS.get(kind, kind.__name__.upper())
        if choices:
            metavar = f"{{{','.join(choices)}}}"
        group.add_argument(flag(name), type=kind_of, metavar=metavar, help=help)


def _type(name, kind):
    """The argparse type of an option: any machine number. The recipe checks its bounds."""
    maximum = 2**32 - 1 if name == "seed" else LARGEST  # the maximum of NumPy's seeds
    whole = Number(int, -maximum, maximum)
    if kind is tokens:
        return lambda text: text if text == AUTO else whole(text)
    if kind is float:
        return Number(float, -math.inf, math.inf, nan=True)
    return whole if kind is int else kind


def groups():
    """{name of a setting: its group in the help}"""
    fields = dataclasses.fields(Recipe)
    return {f.name: f.metadata["group"] for f in fields if "group" in f.metadata}


def model_options():
    """The fields of the models' configurations that are options: (name, type, help, choices)."""
    found = {}
    for kind in vars(config).values():
        if isinstance(kind, type) and issubclass(kind, config.StackOptions):
            if not kind.IS_TRAINED:
                continue
            for name, *rest in fields_of(kind):
                found.setdefault(name, (name, *rest))
    return list(found.values())


def fields_of(configuration):
    """Yields (name, type, help, choices) of a configuration's fields, except sizes of vocabularies
    and labels."""
    kinds = typing.get_type_hints(configuration)
    for field in dataclasses.fields(configuration):
        if field.name != "num_labels" and not field.name.endswith("vocabulary_size"):
            # For `int | None`, the type is int.
            kind = next(iter(typing.get_args(kinds[field.name])), kinds[field.name])
            yield field.name, kind, field.metadata.get("help", ""), field.metadata.get("choices")


def search_options():
    """The search options that are not settings of a recipe: (name, type, help)."""
    settings = {field.name for field in dataclasses.fields(Recipe)}
    return [
        (option.name, option.kind, f"{option.help}; default {option.default}")
        for option in KEPT.values()
        if option.name not in settings
    ]
