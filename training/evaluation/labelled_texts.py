"""Evaluates a model of labelled texts: `training.evaluate RUN --source FILE --labels FILE`."""

import time

import numpy as np

from ..data.reader import CorpusError, CorpusReport
from ..tasks import TASKS
from ..tasks.labelled import LabelledTask

# The scores in a table: {name: (title, format, how it is counted)}.
MEASURES = {
    "token_f1": ("F1 of words", "{:.2f} %", "shared by answer and reference, the mean"),
    "exact_match": ("exact match", "{:.2f} %", "to the letter"),
    "macro_f1": ("macro F1", "{:.4f}", "the mean over the labels"),
    "accuracy": ("accuracy", "{:.4f}", "of the labels"),
}
SHOWN = 40  # maximum number of labels in a table
WITH_COUNTS, DRAWN = 20, 100  # maximum number of labels in a picture: with counts, and at all


def task_of(family, model):
    """The `LabelledTask` of a family and the fields of a model's configuration, or None."""
    for task in TASKS.values():
        if isinstance(task, LabelledTask) and task.family == family and task.is_of(model):
            return task
    return None


def evaluate_labels(task, service, pairs, model, batch_size):
    """Scores a model of labelled texts on a test set. `batch_size` changes no score.

    Returns:
        (scores, answers, confused): a dict for JSON, a list of strings, and the third result of
        `LabelledTask.judged`.

    Raises:
        CorpusError: no pair can be used.
    """
    report = CorpusReport(unit=task.unit)
    pairs = list(task.cleaned(pairs, report, model))
    if not pairs:
        raise CorpusError(f"no {task.unit} of the test set can be used: {report}")
    service.answer([pairs[0].source])
    started = time.monotonic()
    scores, answers, confused = task.judged(service, pairs, batch_size)
    seconds = time.monotonic() - started
    more = {"pairs": len(pairs), "search": "as served", "seconds": seconds}
    more |= {"dropped": report.blank + report.unmatched, "texts_per_second": len(pairs) / seconds}
    return {**scores, **more}, answers, confused


def draw_confusion(path, tokenizer, confused):
    """Draws the confusion matrix as PNG. Each row shows the shares of a label's texts."""
    if confused is None or len(confused) > DRAWN:
        count = "none" if confused is None else f"{len(confused):,}"
        raise ValueError(f"--picture draws at most {DRAWN} labels, got {count}")
    names = tokenizer.target.labels
    from ..report.fonts import lettered
    from ..report.picture import pyplot, write_picture
    from ..report.picture_style import SHARES, at_axis

    shares = confused / np.maximum(confused.sum(axis=1, keepdims=True), 1)
    with lettered(names):
        size = 2 + 0.4 * len(names)
        figure, axes = pyplot().subplots(figsize=(size + 1, size), layout="constrained")
        image = axes.imshow(shares, cmap=SHARES, vmin=0, vmax=1)
        at_axis(axes.xaxis, names)
        at_axis(axes.yaxis, names)
        axes.set(xlabel="predicted", ylabel="label")
        if len(names) <= WITH_COUNTS:
            for (row, column), count in np.ndenumerate(confused):
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour)
        axes.set_title("which label was predicted for which", fontsize="medium")
        figure.colorbar(image, shrink=0.8)
        write_picture(path, figure)


def print_labels(scores, name):
    """Prints the scores as tables on standard output."""
    from rich import print as show
    from rich.table import Table
    from rich.text import Text

    from ..report.scores import measures_table

    table = measures_table(f"{name}: {scores['pairs']:,} texts")
    for key, (title, form, how) in MEASURES.items():
        if key in scores:
            table.add_row(title, form.format(scores[key]), how)
    if scores["dropped"]:
        table.add_row("dropped", f"{scores['dropped']:,}", "without a text or what belongs to it")
    table.add_row("speed", f"{scores['texts_per_second']:,.1f} texts/s", "warm")
    show(table)
    if labels := scores.get("labels"):
        table = Table(title="by label")
        for column in ("label", "texts", "F1", "precision", "recall"):
            table.add_column(column, justify="left" if column == "label" else "right")
        for label, figures in list(labels.items())[:SHOWN]:
            shown = [f"{figures[key]:.3f}" for key in ("f1", "precision", "recall")]
            table.add_row(Text(label), f"{figures['count']:,}", *shown)
        show(table)
        if len(labels) > SHOWN:
            print(f"{SHOWN} of {len(labels):,} labels; evaluation.json has all")
