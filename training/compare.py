"""Compares runs on one test set: `tfformer compare RUN RUN...`.

    tfformer compare runs/a runs/b --recipe multi30k --data data/multi30k --split val
    tfformer compare runs/a runs/b --source test.en --target test.de --out compared

Every run translates the test set. The table shows their scores side by side. For each run but the
first it shows a p-value: how often chance alone gives a difference from the first run that is at
least this large, in either direction (paired bootstrap resampling, Koehn 2004). A difference is
usually called significant if p is below 0.05. sacreBLEU's own p-value is one-sided, about half.

If the runs differ only in their seed, the table also shows mean and standard deviation:

    for SEED in 1 2 3; do tfformer train dates --run runs/dates-$SEED --seed $SEED; done
    tfformer compare runs/dates-1 runs/dates-2 runs/dates-3 --recipe dates

--out writes compare.json and curves.png: the validation of all runs by epochs and by minutes. Runs
with different validation corpora are in separate rows.

Exit codes: 0 compared; 1 an error of a run or the corpus; 2 wrong usage; 130 or 143 interrupted.
"""

import functools
import json
import statistics
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np

from tfformer.terminal.command import Parser, main_of

from .command_line.arguments import add_columns
from .evaluate import add_languages, evaluate, read_test_set
from .recipe import recipe_names
from .report.history import read_history

SAMPLES = 1000
# Settings that change only rounding and what dropout draws.
HOW_IT_IS_COMPUTED = ("strategy", "accumulate", "cores", "checkpoint_steps")
# What is averaged over seeds.
SCORES = ("bleu", "bleu_multi30k", "chrf", "exact_match", "perplexity")


def significance(systems, references):
    """The two-sided p-values of the differences from the first system.

    By paired bootstrap resampling (Koehn 2004): the share of resampled differences that are at
    least as far from their mean as the measured difference is from 0.

    A system may have several seeds. Its score is then their mean. Each sample draws the sentences,
    the same for all systems, and for each system as many of its seeds, with replacement. So both
    the test set and the seeds count as chance. Three seeds vary a little less when they are drawn
    than when they are trained, so a p just below 0.05 decides nothing.

    Args:
        systems: {name: a list of strings for each seed}.
        references: a list of strings.

    Returns:
        {name: p}, without the first.
    """
    size, rng = len(references), np.random.default_rng(0)
    drawn = rng.multinomial(size, [1 / size] * size, SAMPLES)
    # How often each pair is drawn, [1 + SAMPLES, N]. In the first row, once: the measured score.
    drawn = np.concatenate([np.ones((1, size), "int32"), drawn.astype("int32")])
    found = []
    for seeds in systems.values():
        scores = np.stack([_scores(drawn @ _counts(texts, references)) for texts in seeds])
        chosen = rng.integers(len(seeds), size=(len(seeds), SAMPLES))
        resampled = np.take_along_axis(scores[:, 1:], chosen, axis=0)
        found.append(np.append(scores[:, 0].mean(), resampled.mean(axis=0)))  # [1 + SAMPLES]
    first, *others = found
    values = []
    for scores in others:
        measured, *resampled = scores - first
        extreme = np.abs(resampled - np.mean(resampled)) >= abs(measured)
        values.append((1 + int(extreme.sum())) / (1 + SAMPLES))
    return dict(zip(list(systems)[1:], values, strict=True))


def _counts(texts, references):
    """The counts of each pair whose sums give the BLEU of a corpus, [N, 10]: the lengths of text
    and reference, then matches and totals of 1- to 4-grams."""
    from sacrebleu.metrics import BLEU

    bleu = BLEU(effective_order=True)
    pairs = zip(texts, references, strict=True)
    found = [bleu.sentence_score(text, [reference]) for text, reference in pairs]
    return np.array([[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in found])


def _scores(sums):
    """BLEU of each row of summed counts [R, 10]."""
    from sacrebleu.metrics import BLEU

    found, smooth = [], BLEU().smooth_method
    for length, reference_length, *counts in sums.tolist():
        matches, totals = counts[:4], counts[4:]
        bleu = BLEU.compute_bleu(matches, totals, length, reference_length, smooth_method=smooth)
        found.append(bleu.score)
    return np.array(found)


def names_of(runs):
    """A name for each run: its folder, with as many parent folders as make the names different."""
    paths = [run.resolve() for run in runs]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"runs must be different folders, got {', '.join(map(str, runs))}")


def compare(runs, pairs, language=None, say=lambda line: None):
    """Scores of several runs on the same pairs, {name: scores}.

    The scores are those of `training.evaluate.evaluate` with "parameters", the sha256 of the
    target's "vocabulary", "minutes" of training if the run has a log, and "p" except for the first
    run. `say` is called with a line for each run.

    Raises:
        ValueError, RunError: a run cannot be read.
    """
    from tfformer.models import TRANSLATING
    from tfformer.run import load_service, read_config, require_family

    found, translations = {}, {}
    for name, run in zip(names_of(runs), runs, strict=True):
        say(f"{name}: translating {len(pairs):,} sources ...")
        require_family(run, read_config(run), *TRANSLATING)
        translator = load_service(run)
        scores, texts = evaluate(translator, pairs, language=language)
        translations[name] = [texts]
        scores["parameters"] = translator.model.count_params()
        scores["vocabulary"] = sha256(translator.tokenizer.target_model).hexdigest()
        if rows := read_history(run):
            scores["minutes"] = rows[-1].get("seconds", 0) / 60
        found[name] = scores
    for name, p in significance(translations, [pair.target for pair in pairs]).items():
        found[name]["p"] = p
    return found


def seeds(runs, found):
    """Mean and standard deviation of runs that differ only in their seed.

    Their models have the same sizes. They were trained on the same corpus, from the same initial
    run, for the same number of epochs, in the same dtypes, and have the same final settings.

    Returns:
        {names: {score: mean, score + "_deviation": of the sample}} of two or more seeds.
    """
    groups = {}
    for name, run in zip(found, runs, strict=True):
        if (facts := _without_seed(run)) is not None:
            seed, rest = facts
            # A second run with the same seed is not another sample.
            groups.setdefault(rest, {}).setdefault(seed, name)
    means = {}
    for group in (list(group.values()) for group in groups.values() if len(group) > 1):
        values = {}
        for score in SCORES:
            numbers = [found[name][score] for name in group if score in found[name]]
            if len(numbers) == len(group):
                values[score] = statistics.mean(numbers)
                values[f"{score}_deviation"] = statistics.stdev(numbers)
        means[" + ".join(group)] = values
    return means


def _without_seed(run):
    """(the seed of a run, all its other settings), or None if they are not known."""
    from tfformer.files import read_json
    from tfformer.run import read_config

    from .preparation.prepare import CORPUS, PREPARED, SETTINGS
    from .report.session import read_sessions

    prepared = Path(run) / PREPARED
    try:
        settings = read_json(prepared / SETTINGS)
        corpus = read_json(prepared / CORPUS)
        corpus.pop("files", None)  # follows from the rest; older runs lack it
    except FileNotFoundError:
        return None
    seed = settings.pop("seed", None)
    for name in HOW_IT_IS_COMPUTED:
        settings.pop(name, None)
    epochs = [row["epoch"] for row in read_history(run)]
    dtypes = sorted({session.get("dtype", "float32") for session in read_sessions(run)})
    facts = [settings, corpus, read_config(run)["model"], max(epochs, default=0), dtypes]
    return seed, json.dumps(facts, sort_keys=True)


def validated_on(run):
    """The checksum of a run's validation corpus, or None if it is not known."""
    from tfformer.files import read_json

    from .preparation.prepare import CORPUS, PREPARED

    try:
        return read_json(Path(run) / PREPARED / CORPUS).get("val", {}).get("sha256")
    except FileNotFoundError:
        return None


def panels(runs, corpora):
    """Groups the names of the runs by validation corpus. Each group is drawn in one panel.

    `runs` is {name: rows of `read_history`}, `corpora` {name: `validated_on`}. A run with an
    unknown corpus has its own panel. Runs that were never validated have none.
    """
    found = {}
    for name, rows in runs.items():
        if any("val_bleu" in row for row in rows):
            found.setdefault(corpora[name] or ("not known", name), []).append(name)
    return list(found.values())


def write_curves(path, runs, corpora, say):
    """Draws validation BLEU of several runs over epochs and over minutes, a row for each corpus."""
    from .report.fonts import lettered
    from .report.picture import pyplot, write_picture

    # If no run was validated, there is an empty row.
    groups = panels(runs, corpora) or [[]]
    several = len(groups) > 1
    if several:
        say(
            f"{path}: a row for each of {len(groups)} validation corpora, as their BLEU is not "
            "comparable"
        )
    with lettered(runs):
        figure, rows = pyplot().subplots(
            len(groups), 2, figsize=(10, 4 * len(groups)), sharey="row", squeeze=False,
            layout="constrained",
        )  # fmt: skip
        for number, (names, (left, right)) in enumerate(zip(groups, rows, strict=True), 1):
            for name in names:
                validated = [row for row in runs[name] if "val_bleu" in row]
                scores = [row["val_bleu"] for row in validated]
                left.plot([row["epoch"] for row in validated], scores, label=name)
                minutes = [row.get("seconds", 0) / 60 for row in validated]
                right.plot(minutes, scores, label=name)
            left.set(xlabel="epoch", ylabel="validation BLEU")
            right.set(xlabel="minutes")
            if several:
                left.set_title(f"validation corpus {number} of {len(groups)}")
            if names:
                left.legend(loc="lower right")
        write_picture(path, figure)


def show(found, means):
    """Prints the scores side by side, then the means of `seeds`."""
    from rich import print as show
    from rich.markup import escape
    from rich.table import Table

    rows = {
        "BLEU": ("bleu", "{:.2f}"),
        "BLEU (Multi30K)": ("bleu_multi30k", "{:.2f}"),
        "p, difference from the first": ("p", "{:.3f}"),
        "chrF2": ("chrf", "{:.2f}"),
        "exact match, %": ("exact_match", "{:.2f}"),
        "repeated words, %": ("repeated_words", "{:.2f}"),
        "perplexity": ("perplexity", "{:.3f}"),
        "parameters": ("parameters", "{:,}"),
        "minutes of training": ("minutes", "{:.1f}"),
        "sentences a second": ("sentences_per_second", "{:.1f}"),
    }
    heads = [*found, *(f"{names}: mean ± deviation" for names in means)]
    table = Table("measure", *map(escape, heads))
    for title, (key, form) in rows.items():
        if any(key in scores for scores in found.values()):
            cells = [form.format(s[key]) if key in s else "" for s in found.values()]
            both = " ± ".join([form, form])
            cells += [
                both.format(m[key], m[f"{key}_deviation"]) if key in m else ""
                for m in means.values()
            ]
            table.add_row(title, *cells)
    show(table)
    first = next(iter(found.values()))
    show(f"{first['pairs']:,} pairs, {first['bleu_signature']}")
    if len({scores["vocabulary"] for scores in found.values()}) > 1:
        show("The vocabularies differ, so their perplexities cannot be compared.")


def parser():
    """The command's arguments."""
    parser = Parser(
        "training.compare", __doc__, prints=True, reads=["runs"], files=["source", "target"]
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="two or more")
    recipes = ", ".join(recipe_names())
    parser.add_argument("--recipe", help=f"use the test set of a recipe: {recipes}, or a file")
    parser.add_argument("--data", type=Path, help="the folder of the recipe's data")
    parser.add_argument(
        "--split", default="val", choices=("test", "val"), help="the recipe's split; default val"
    )
    parser.add_argument("--source", type=Path, help="a text file, or a TSV without --target")
    parser.add_argument("--target", type=Path, help="the reference translations, line by line")
    add_columns(parser)
    add_languages(parser)
    parser.add_argument("--out", type=Path, help="a folder for compare.json and curves.png")
    return parser


def _run(command, options):
    if len(options.runs) < 2:
        command.error(f"RUN must be two or more, got {options.runs[0]}")
    try:
        pairs, language = read_test_set(options, options.runs[0])
    except (ValueError, OSError) as error:
        return command.fail(error, 2 if type(error) is ValueError else 1)

    from tfformer.files import write_json

    say = functools.partial(print, file=sys.stderr)
    try:
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
        found = compare(options.runs, pairs, language, say)
        means = seeds(options.runs, found)
        show(found, means)
        if options.out:
            write_json(options.out / "compare.json", found | means)
            curves = dict(zip(found, map(read_history, options.runs), strict=True))
            corpora = dict(zip(found, map(validated_on, options.runs), strict=True))
            write_curves(options.out / "curves.png", curves, corpora, say)
    except (ValueError, OSError) as error:
        return command.fail(error)
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
