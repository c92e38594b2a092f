"""How good a model of labelled texts is: `training.evaluate RUN --source FILE --labels FILE`."""

import time

from training.data.reader import CorpusError, CorpusReport
from training.tasks import TASKS
from training.tasks.labelled import LabelledTask

# What a table shows of the scores: {name: (title, format, how it is counted)}.
MEASURES = {
    "macro_f1": ("macro F1", "{:.4f}", "the mean over the labels"),
    "accuracy": ("accuracy", "{:.4f}", "of the labels"),
}
SHOWN = 40  # labels of a table at most


def task_of(family):
    """The `LabelledTask` of a family by its name; None if it is of another kind."""
    found = [task for task in TASKS.values() if task.family == family]
    return found[0] if isinstance(found[0], LabelledTask) else None


def evaluate_labels(task, service, pairs, model, batch_size):
    """The scores of a model of labelled texts on a test set.

    Args:
        task: a `LabelledTask`.
        service: what serves the model.
        pairs: a list of `Pair` as the files have them.
        model: the fields of the model's configuration.
        batch_size: texts at once; changes no score.

    Returns:
        (scores, answers): a dict that JSON can hold, and a list of strings.

    Raises:
        CorpusError: no pair can be used.
    """
    report = CorpusReport(unit=task.unit)
    pairs = list(task.cleaned(pairs, report, model))
    if not pairs:
        raise CorpusError(f"no {task.unit} of the test set can be used: {report}")
    service.answer([pairs[0].source])
    started = time.monotonic()
    scores, answers = task.judged(service, pairs, batch_size)
    seconds = time.monotonic() - started
    more = {"pairs": len(pairs), "search": "as served", "seconds": seconds}
    more |= {"dropped": report.blank, "texts_per_second": len(pairs) / seconds}
    return {**scores, **more}, answers


def print_labels(scores, name):
    """The scores as tables on standard output."""
    from rich import print as show
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"{name}: {scores['pairs']:,} texts"))
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("how it is counted", overflow="fold")
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
