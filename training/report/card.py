"""Writes the model card of a run (Mitchell et al. 2019): a `README.md` for the Hugging Face Hub.

The card depends only on the files in the run directory. So a training and an evaluation each write
the card again after they change these files:

    config.json               the model that is published, and how it was chosen
    prepared/recipe.json      the settings
    prepared/corpus.json      the corpus
    log.csv                   the epochs
    sessions.json             when, where, for how long
    scores.json               test sets

If a file is missing, the card leaves out its section.
"""

import json
import shlex
import zipfile
from pathlib import Path

import numpy as np

from tfformer.files import RunError, read_json, write_atomically
from tfformer.run import read_config

from ..data.reader import CorpusReport
from ..preparation.prepare import CORPUS, PREPARED, SETTINGS
from ..recipe import TRANSLATION, options
from ..tasks import TASKS
from .history import hardly_learned, read_history
from .scores import read_scores
from .session import costs, read_sessions

CARD = "README.md"
MARK = "<!-- written anew by each training and evaluation; to keep your own, remove this line -->"
EPOCHS = 12  # maximum rows of the table of epochs
MEASURES = {
    "bleu": ("BLEU", "{:.2f}"),
    "bleu_multi30k": ("BLEU (Multi30K)", "{:.2f}"),
    "chrf": ("chrF2", "{:.2f}"),
    "exact_match": ("exact match, %", "{:.2f}"),
    "token_f1": ("F1 of words, %", "{:.2f}"),
    "macro_f1": ("macro F1", "{:.4f}"),
    "accuracy": ("accuracy", "{:.4f}"),
    "perplexity": ("perplexity, teacher forcing", "{:.3f}"),
    "bits_per_byte": ("bits a byte", "{:.3f}"),
}
COLUMNS = {
    "epoch": ("epoch", "{:.0f}"),
    "seconds": ("seconds", "{:.0f}"),
    "loss": ("loss", "{:.3f}"),
    "accuracy": ("accuracy", "{:.3f}"),
    "val_loss": ("validation loss", "{:.3f}"),
}


def write_card(directory):
    """Writes the card of a run directory, if it has a model and the user has not removed `MARK`.

    Raises:
        RunError: a file of the run is damaged. The message names it.
        OSError: the card cannot be written. The old card is kept.
    """
    directory = Path(directory)
    path = directory / CARD
    if not (directory / "config.json").exists():
        return
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        return
    write_atomically(path, card(directory).encode())


def update_card(directory, say):
    """`write_card` after other work: an error is passed to `say`, and the work continues."""
    try:
        write_card(directory)
    except (ValueError, LookupError, TypeError, OSError) as error:
        say(f"no model card: {error}")


def card(directory):
    """The card of a run directory: metadata for the Hugging Face Hub, then Markdown."""
    directory = Path(directory)
    name, config = directory.resolve().name, read_config(directory)
    settings = _facts(directory / PREPARED / SETTINGS)
    task = _task(directory, settings)
    history, corpus = read_history(directory), _facts(directory / PREPARED / CORPUS)
    sections = (
        _head(task, name, settings),
        _model(task, config, settings, count_parameters(directory / config["weights"])),
        _use(task, name, config),
        _scores(task, config, history, read_scores(directory)),
        _data(task, corpus),
        _training(
            task, read_sessions(directory), history, settings, _facts(directory / PREPARED / CORPUS)
        ),
        _settings(settings),
        _limitations(task, config, settings),
    )
    texts = ["\n".join(lines) for lines in sections]
    return "\n\n".join(filter(None, texts)) + "\n"


def _task(directory, settings):
    """The task that a run was trained for. Without one in the settings, it is translation."""
    name = settings.get("task", TRANSLATION)
    if name not in TASKS:
        path = directory / PREPARED / SETTINGS
        raise RunError(f"{path}: task must be one of {list(TASKS)}, got {name!r}")
    return TASKS[name]


def count_parameters(path):
    """The number of elements of all arrays of an .npz file. Only the headers are read."""
    total = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as file:
                    np.lib.format.read_magic(file)
                    shape, _, _ = np.lib.format.read_array_header_1_0(file)
                    total += int(np.prod(shape))
    except zipfile.BadZipFile as error:
        raise RunError(f"{path} is damaged: {error}") from error
    return total


def _facts(path):
    """The content of a JSON file; {} if there is no file."""
    return read_json(path) if path.exists() else {}


def _table(heads, rows):
    for row in (heads, ["---"] * len(heads), *rows):
        # An unescaped bar would end the cell.
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


def _head(task, name, settings):
    language = settings.get("language")
    languages = [name for name in (settings.get("source_language"), language) if name]
    yield "---"
    if languages:
        # Quoted, because `no` (Norwegian) is a boolean in YAML.
        yield f"language: {json.dumps(languages)}"
    yield "library_name: tfformer"
    yield f"pipeline_tag: {task.pipeline_tag}"
    yield "---"
    yield MARK
    yield f"# {name}"
    yield ""
    into = f", into the language `{language}`" if language else ""
    yield f"{task.description}{into}."


def _model(task, config, settings, parameters):
    weights = config["weights"]
    rows = {
        "parameters": f"{parameters:,}",
        **dict(task.sizes(config, settings)),
        "search": ", ".join(f"`{name}` {value}" for name, value in config["search"].items()),
        "weights": f"`{weights}`, sha256 `{config['sha256'][weights]}`",
    }
    yield "## The model"
    yield from _table(["", ""], rows.items())


def _use(task, name, config):
    run = shlex.quote(f"runs/{name}")
    text = (config.get("training", {}).get("examples") or ["a text"])[0]
    yield "## How to use it"
    yield "In a checkout of tfformer that has this folder in `runs`:"
    yield "```"
    yield from task.usage(run, shlex.quote(text))
    if task.exported:
        yield f"tfformer export {run} {shlex.quote(f'exported/{name}')}"
    yield "```"


def _scores(task, config, history, tested):
    rows = list(
        _measures(
            "validation, by which it was chosen", task.figure_how, task.chosen(config, history)
        )
    )
    for entry in tested:
        name, search = entry["test_set"], entry["search"]
        if len({other["sha256"] for other in tested if other["test_set"] == name}) > 1:
            name += f" `{entry['sha256'][:8]}`"
        if "length_penalty" in entry and search != "greedy":
            search += f", length penalty {entry['length_penalty']:g}"
        rows += _measures(
            f"{name}, {entry['pairs']:,} {task.unit}s, {entry['date']}", search, entry
        )
    if rows:
        yield "## Scores"
        yield from _table(["text", "search", "measure", "score", "signature"], rows)


def _measures(text, search, scores):
    for key, (name, form) in MEASURES.items():
        if key in scores:
            signature = scores.get(f"{key}_signature")
            yield text, search, name, form.format(scores[key]), f"`{signature}`" * bool(signature)


# Sentences about other runs used in the training, by their key in `corpus.json`.
TAKEN = {
    "init": "Training began with the weights `{weights}` of the run `{run}`.",
    "encoder": "Its encoder began with the weights `{weights}` of the run `{run}`.",
    "decoder": "Its decoder began with the weights `{weights}` of the run `{run}`.",
    "teacher": "Its targets are translations by the run `{run}`, weights `{weights}`.",
    "teachers": "Beside its targets it learned how likely each token is to the run `{run}`, "
    "weights `{weights}`.",
}


def _data(task, corpus):
    if not corpus:
        return
    yield "## Data"
    yield f"From {corpus['origin'] or 'a corpus without a name'}."
    for name, words in TAKEN.items():
        taken = corpus.get(name) or []
        for one in taken if isinstance(taken, list) else [taken]:
            yield words.format(**one)
    yield ""
    rows = []
    for split in ("train", "val"):
        report = dict(corpus[split])
        digest = report.pop("sha256")
        rows.append([split, CorpusReport(**report), f"`{digest}`"])
    heads = ["", f"{task.unit}s", f"sha256 of `{PREPARED}/*/{task.corpus.content}`"]
    yield from _table(heads, rows)
    yield ""
    yield "**Licence.** A model inherits the terms of its data, which this card does not know."


def _training(task, sessions, history, settings, corpus):
    if reason := hardly_learned(history, settings, corpus):
        yield f"**This model has hardly learned: {reason}.**\n"
    if sessions:
        rows = [*costs(sessions), *_speed(history)]
        yield "## Training"
        yield from _table(["", ""], rows)
    if history:
        shown, columns = _some(task, history), COLUMNS | dict(task.columns)
        yield ""
        names = [name for name in columns if any(name in row for row in shown)]
        cells = [
            [columns[name][1].format(row[name]) if name in row else "" for name in names]
            for row in shown
        ]
        yield from _table([columns[name][0] for name in names], cells)
        if len(shown) < len(history):
            yield f"\n{len(shown)} of {len(history)} epochs; `log.csv` has all."


def _speed(history):
    """Number of tokens and tokens per second, of the epochs with counted tokens."""
    counted = [row for row in history if "tokens" in row and row.get("tokens_per_second")]
    if counted:
        tokens = sum(row["tokens"] for row in counted)
        seconds = sum(row["tokens"] / row["tokens_per_second"] for row in counted)
        epochs = f"{len(counted)} epoch{'s' * (len(counted) > 1)}"
        yield "tokens of the corpus seen, source and target", f"{tokens:,.0f} in {epochs}"
        yield "tokens a second, without validation", f"{tokens / seconds:,.0f}"


def _some(task, history):
    """At most `EPOCHS` rows. If there are more, those with validation; if these are still too many,
    the best one and evenly spaced ones."""
    validated = [row for row in history if task.figure in row]
    if len(history) > EPOCHS:
        history = validated or history
    if len(history) > EPOCHS:
        places = np.linspace(0, len(history) - 1, EPOCHS - 1).round().astype(int).tolist()
        if validated:
            places.append(task.best([row[task.figure] for row in validated]))
        history = [history[n] for n in sorted(set(places))]
    return history


def _settings(settings):
    if not settings:
        return
    known = {name: (default, help) for name, _, help, default in options()}
    known["model_changes"] = ({}, "sizes in place of the preset's")
    rows = []
    for name, value in settings.items():
        default, help = known.get(name, (None, ""))
        rows.append([name, f"`{json.dumps(value)}`", f"`{json.dumps(default)}`", help])
    changed = [row for row in rows if row[1] != row[2]]
    heads = ["setting", "value", "default", "what it is"]
    yield "## Settings"
    yield "Those that are not the default:" if changed else "All are the default."
    yield ""
    if changed:
        yield from _table(heads, changed)
        yield ""
    yield "<details><summary>All settings</summary>"
    yield ""
    yield from _table(heads, rows)
    yield ""
    yield "</details>"


def _limitations(task, config, settings):
    yield "## Limitations"
    if task.figure in config.get("training", {}):
        yield "- The validation scores chose this model among others, so they flatter it."
    yield "- A score holds for text like that of its test set. Of other domains, and of whether a"
    yield "  translation is complete, true or harmless, nothing was measured here."
    if maximum := config["search"].get("max_source_length"):
        yield f"- Of a source at most {maximum} tokens are read; what comes after them is cut."
    if "seed" in settings:
        yield f"- This is one seed, {settings['seed']}. Another one scores differently by chance."
