"""Scores a run on a test set: `tfformer evaluate RUN`.

    tfformer evaluate runs/dates --recipe dates
    tfformer evaluate runs/multi30k --recipe multi30k --data data/multi30k
    tfformer evaluate runs/mine --source test.en --target test.de
    tfformer evaluate runs/one --ensemble runs/two runs/three --recipe dates
    tfformer evaluate runs/stories --text test.txt
    tfformer evaluate runs/topics --source test.txt --labels test.labels

It prints a table and writes RUN/evaluation.json. For translations: BLEU and chrF with sacreBLEU's
signatures, exact match, perplexity with teacher forcing, and the speed of the search; with
--language also BLEU by the protocol of the Multi30K literature. For a language model: perplexity
per token and bits per byte. For labels: macro F1, accuracy, and the scores of each label.

If a TSV has a third column, or a recipe has groups, each group gets a row, up to 100 groups.

RUN/scores.json and the model card RUN/README.md keep the scores of all test sets and searches. A
repeated evaluation replaces its old scores.

Exit codes: 0 scored; 1 an error of the run, the corpus or the output; 2 wrong usage; 130 or
143 interrupted.
"""

import dataclasses
import functools
import os
import sys
import time
from pathlib import Path

from tfformer.terminal.command import Parser, count, main_of

from .command_line.arguments import add_columns
from .evaluation.search_options import (
    SEARCHED_RUNS,
    add_search,
    load_searched,
    others,
    search_options,
)
from .recipe import load_recipe, recipe_names, require_recipe

# With more groups, the third column is something else, such as Tatoeba's attribution.
MAX_GROUPS = 100


def parser():
    """The command's arguments."""
    runs, files = ["run", *SEARCHED_RUNS], ["source", "target", "labels", "text"]
    parser = Parser("training.evaluate", __doc__, prints=True, reads=runs, files=files)
    parser.add_argument("run", type=Path, help="the run directory")
    recipes = ", ".join(recipe_names())
    parser.add_argument("--recipe", help=f"use the test set of a recipe: {recipes}, or a file")
    parser.add_argument("--data", type=Path, help="the folder of the recipe's data")
    parser.add_argument(
        "--split", default="test", choices=("test", "val"), help="the recipe's split; default test"
    )
    parser.add_argument(
        "--source", type=Path,
        help="a text file; a TSV without --target; for a tagger also a CoNLL file",
    )  # fmt: skip
    parser.add_argument("--target", type=Path, help="the reference translations, line by line")
    add_columns(parser)
    parser.add_argument("--labels", type=Path, help="the labels, line by line, instead of --target")
    parser.add_argument("--text", type=Path, help="plain text, for a language model")
    parser.add_argument("--greedy", action="store_true", help="greedy instead of beam search")
    add_search(parser)
    parser.add_argument("--batch-size", type=count(), default=64, help="texts at once; default 64")
    add_language(parser)
    parser.add_argument(
        "--picture", type=Path, metavar="PNG", help="draw the confusion matrix of the labels"
    )
    parser.add_argument("--output", type=Path, help="default: RUN/evaluation.json")
    parser.add_argument("--translations", type=Path, help="write the translations into this file")
    return parser


def add_languages(parser):
    """Adds the options for the languages of the test set. Default: those of the training."""
    parser.add_argument("--source-language", help="source language, if the recipe has several")
    add_language(parser)


def add_language(parser):
    """Adds the option for the target language of the test set."""
    parser.add_argument(
        "--language", help="target language; adds BLEU by the protocol of the Multi30K literature"
    )


def languages(arguments, run):
    """The given languages, or those of the run's training: {field of the recipe: language}."""
    from tfformer.files import read_json

    from .preparation.prepare import PREPARED, SETTINGS

    settings = Path(run) / PREPARED / SETTINGS
    trained = read_json(settings) if settings.exists() else {}
    found = {
        name: getattr(arguments, name) or trained.get(name)
        for name in ("source_language", "language")
    }
    return {name: language for name, language in found.items() if language}


def read_texts(arguments):
    """The texts of --text as pairs without a target. Raises a ValueError or a CorpusError."""
    from .data.reader import CorpusError, Pair, is_blank, read_lines

    others = ("recipe", "data", "source", "target", "columns", "labels", "greedy", "translations")
    others += ("language", "picture")
    for name in others:
        if getattr(arguments, name):
            raise ValueError(f"--text is for a language model and cannot be given with --{name}")
    pairs = [Pair(line, "") for line in read_lines(arguments.text) if not is_blank(line)]
    if not pairs:
        raise CorpusError(f"{arguments.text} must have a text to score, got none")
    return pairs


def read_test_set(arguments, run):
    """The pairs to score, checked, and the target language or "".

    By default, the languages are those of `run`.

    Raises:
        ValueError: the arguments cannot be combined.
        CorpusError: the corpus cannot be read.
    """
    if bool(arguments.recipe) == bool(arguments.source):
        raise ValueError("give either --recipe or --source and --target")
    labels = getattr(arguments, "labels", None)  # a comparison has no such option
    if arguments.target and labels:
        raise ValueError("--target is for translations, --labels for labelled texts: give only one")
    for side, given in (("target", arguments.target), ("labels", labels)):
        if arguments.recipe and given:
            raise ValueError(f"--{side} needs --source: a recipe has its own")
    if arguments.columns and not arguments.source:
        raise ValueError("--columns needs --source: a recipe has its own")
    of_run = hasattr(arguments, "target_language")  # it may be that of a multilingual run
    if arguments.source and (arguments.data or (arguments.source_language and not of_run)):
        raise ValueError("--data and --source-language need --recipe, got --source")
    if arguments.recipe:
        require_recipe(arguments.recipe)

    from tfformer.models import TAGGER
    from tfformer.run import read_config

    from .command_line.own_files import pairs_of
    from .data.reader import CorpusError

    spoken = languages(arguments, run)
    language = spoken.get("language", "")
    if arguments.recipe:
        recipe = dataclasses.replace(load_recipe(arguments.recipe), **spoken)
        pairs, language = list(recipe.read(arguments.split, arguments.data)), recipe.language
    else:
        target, columns = arguments.target or labels, arguments.columns
        if columns and target:
            raise ValueError("--columns needs a --source without --target or --labels")
        tagged = read_config(run).get("family") == TAGGER
        pairs = list(pairs_of(arguments.source, target, columns=columns, tagged=tagged))
    if not pairs:
        raise CorpusError(f"{arguments.source or arguments.recipe} must have a pair, got none")
    return pairs, language


def name_of(arguments):
    """The name of the test set: a recipe and a split, or files without their folders."""
    if arguments.recipe:
        return f"{Path(arguments.recipe).name} {arguments.split}"
    paths = (arguments.text, arguments.source, arguments.target, arguments.labels)
    return ", ".join(path.name for path in paths if path)


def exact_match(translations, references):
    """The share, in percent, of translations that are equal to their reference."""
    hits = sum(a == b for a, b in zip(translations, references, strict=True))
    return 100 * hits / len(references)


def repeated_words(translations):
    """The share, in percent, of words that repeat the word before. A model that predicts all words
    at once repeats some (Gu et al. 2018, "the multimodality problem")."""
    words = [text.split() for text in translations]
    twice = sum(a == b for row in words for a, b in zip(row, row[1:], strict=False))
    return 100 * twice / max(sum(map(len, words)), 1)


def forced_perplexity(translator, pairs, batch_size):
    """exp(total -log P(target | source) / total tokens), with teacher forcing."""
    from .evaluation.perplexity import scored

    rows = [(pair.source, pair.target) for pair in pairs]
    return scored(translator, rows, batch_size, "scoring the references").perplexity


def evaluate(translator, pairs, *, greedy=False, batch_size=64, language=None):
    """The scores of a translator on pairs with references.

    Args:
        translator: a `Translator`, or a `ParallelTranslator`, which has no perplexity.
        pairs: a list of `Pair`, at least one.
        greedy: greedy search instead of the translator's own. Default False.
        batch_size: sentences at once; changes no score. Default 64.
        language: the target language; adds BLEU by the protocol of the Multi30K literature.

    Returns:
        (scores, translations): a dict for JSON, and a list of strings.
    """
    import tensorflow as tf

    from .tasks.translation import translations_of

    sources = [pair.source for pair in pairs]
    translator.translate(sources[:1], greedy=greedy)
    started = time.monotonic()
    translations = translations_of(translator, sources, batch_size, greedy)
    seconds = time.monotonic() - started
    tokens = int(tf.size(translator.tokenizer.encode_target(tf.constant(translations)).values))
    scores = {
        **translator.search_facts(greedy),
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "sentences_per_second": len(pairs) / seconds,
    }
    if "score" in translator.signatures:
        scores["perplexity"] = forced_perplexity(translator, pairs, batch_size)
    return scores | scores_of_texts(translations, pairs, language), translations


def scores_of_texts(translations, pairs, language=None):
    """The scores of translations alone, a dict for JSON. For the arguments, see `evaluate`."""
    from .metrics.bleu import bleu, bleu_multi30k, chrf

    references = [pair.target for pair in pairs]
    scores = {}
    for name, metric in {"bleu": bleu, "chrf": chrf}.items():
        scores[name], scores[f"{name}_signature"] = metric(translations, references)
    if language:
        score, signature = bleu_multi30k(translations, references, language)
        scores["bleu_multi30k"], scores["bleu_multi30k_signature"] = score, signature
    scores |= {
        "exact_match": exact_match(translations, references),
        "repeated_words": repeated_words(translations),
        "pairs": len(pairs),
    }
    groups = {}
    for pair, translation in zip(pairs, translations, strict=True):
        if pair.group:
            groups.setdefault(pair.group, []).append((translation, pair.target))
    if len(groups) > MAX_GROUPS:
        scores["groups_left_out"] = len(groups)
    elif groups:
        scores["groups"] = {}
        for name in sorted(groups):
            own = list(zip(*groups[name], strict=True))
            scores["groups"][name] = {
                "pairs": len(own[0]), "exact_match": exact_match(*own), "bleu": bleu(*own)[0],
            }  # fmt: skip
    return scores


def print_scores(scores, name):
    """Prints the scores as tables."""
    from rich import print as show
    from rich.table import Table
    from rich.text import Text

    from .report.scores import measures_table

    table = measures_table(f"{name}: {scores['pairs']:,} pairs, {scores['search']}")
    names = {"bleu": "BLEU", "bleu_multi30k": "BLEU (Multi30K)", "chrf": "chrF2"}
    for key, title in names.items():
        if key in scores:
            table.add_row(title, f"{scores[key]:.2f}", scores[f"{key}_signature"])
    table.add_row("exact match", f"{scores['exact_match']:.2f} %", "equal to the reference")
    repeated = f"{scores['repeated_words']:.2f} %"
    table.add_row("repeated words", repeated, "words equal to the word before")
    if "perplexity" in scores:
        perplexity = f"{scores['perplexity']:.3f}"
        table.add_row("perplexity", perplexity, "per target token, teacher forcing")
    speed = f"{scores['tokens_per_second']:,.0f} tokens/s"
    table.add_row("speed", speed, f"{scores['sentences_per_second']:.1f} sentences/s, warm")
    show(table)
    if "groups_left_out" in scores:
        left_out = f"{scores['groups_left_out']:,} groups, more than {MAX_GROUPS}"
        show(f"Scores by group are left out: the third column has {left_out}.")
    if "groups" in scores:
        table = Table(title="by group")
        for column in ("group", "pairs", "exact match", "BLEU"):
            table.add_column(column, justify="left" if column == "group" else "right")
        for group, figures in scores["groups"].items():
            exact = f"{figures['exact_match']:.1f} %"
            table.add_row(Text(group), str(figures["pairs"]), exact, f"{figures['bleu']:.1f}")
        show(table)


def _run(command, arguments):
    for name in ("output", "translations", "picture"):
        path = getattr(arguments, name)
        if path and not os.access(path.parent, os.W_OK):
            return command.fail(f"--{name}: {path.parent} is not a writable folder")
    try:
        options = search_options(arguments)
        if arguments.text:
            pairs, language = read_texts(arguments), ""
        else:
            pairs, language = read_test_set(arguments, arguments.run)
    except (ValueError, OSError) as error:
        wrong_usage = type(error) is ValueError
        return command.fail(error, 2 if wrong_usage else 1)

    from tfformer.files import write_json, write_lines
    from tfformer.run import read_config

    from .report.card import update_card
    from .report.scores import add_scores

    say = functools.partial(print, file=sys.stderr)
    try:
        # Read first: a training may replace the weights meanwhile. The scores are of these.
        weights = read_config(arguments.run)["weights"]
        scores, answers = _scored(arguments, pairs, language, options, say)
        writable = os.access(arguments.run, os.W_OK)
        if arguments.output or writable:
            write_json(arguments.output or arguments.run / "evaluation.json", scores)
        if arguments.translations:
            write_lines(arguments.translations, answers)
        if writable:
            add_scores(arguments.run, scores, name_of(arguments), pairs, weights)
            update_card(arguments.run, say)
        else:
            say(f"{arguments.run} is read-only: its scores and model card are not updated")
    except (ValueError, OSError) as error:
        return command.fail(error, 1)
    return 0


def _scored(arguments, pairs, language, options, say):
    """Prints and returns the scores of the run, and returns its answers (none for plain text)."""
    from tfformer.models import LANGUAGE_MODEL, MASKED_LANGUAGE_MODEL, TRANSLATING
    from tfformer.run import read_config, read_family, require_family

    from .evaluation.labelled_texts import (
        draw_confusion,
        evaluate_labels,
        print_labels,
        task_of,
    )
    from .evaluation.perplexity import evaluate_masked, evaluate_texts, print_perplexity

    run, size = arguments.run, arguments.batch_size
    config = read_config(run)
    if arguments.text:
        masked = read_family(run, config) == MASKED_LANGUAGE_MODEL
        require_family(run, config, MASKED_LANGUAGE_MODEL if masked else LANGUAGE_MODEL)
        scored = evaluate_masked if masked else evaluate_texts
        scores = scored(load_searched(arguments, options), [pair.source for pair in pairs], size)
        print_perplexity(scores, str(run))
        return scores, []
    family = read_family(run, config)
    task = task_of(family, config["model"])
    if task is None or arguments.target:
        require_family(run, config, *TRANSLATING)
        if arguments.picture:
            raise ValueError(f"--picture needs a model with labels, got {run} of {family!r}")
        if arguments.labels:
            raise ValueError(f"--labels needs a model with labels, got {run} of {family!r}")
        service = load_searched(arguments, options)
        say(f"translating {len(pairs):,} sources ...")
        scores, answers = evaluate(
            service, pairs, greedy=arguments.greedy, batch_size=size, language=language
        )
        if beside := others(arguments):
            scores["search"] += f" ({', '.join(path.name for path in beside)})"
        print_scores(scores, str(run))
        return scores, answers
    for name in ("greedy", "language", "source_language", "target_language"):
        if getattr(arguments, name):
            raise ValueError(
                f"--{name.replace('_', '-')} needs a translator, got {run} of {family!r}"
            )
    service = load_searched(arguments, options)
    say(f"reading {len(pairs):,} texts ...")
    scores, answers, confused = evaluate_labels(task, service, pairs, config["model"], size)
    if arguments.picture:
        draw_confusion(arguments.picture, service.tokenizer, confused)
    print_labels(scores, str(run))
    return scores, answers


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
