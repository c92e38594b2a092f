"""Reads and writes the history of a run, `log.csv`: one row of named numbers per epoch."""

import csv
import io
from pathlib import Path

LOG = "log.csv"
# The facts about runs that a training began with.
INITIAL = ("init", "encoder", "decoder")


def write_history(directory, rows):
    """Writes the rows, dicts of numbers, as CSV. The file is replaced atomically."""
    from tfformer.files import write_atomically

    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(Path(directory) / LOG, text.getvalue().encode())


def read_history(directory):
    """The history of a run directory, {name: number} for each epoch; [] if there is none.

    Raises:
        RunError: the file is damaged: it is no table of numbers, or a row has no epoch.
    """
    from tfformer.files import LONGEST_TEXT, RunError, read_bytes

    path = Path(directory) / LOG
    if not path.exists():
        return []
    content = read_bytes(path, LONGEST_TEXT)
    try:
        rows = csv.DictReader(io.StringIO(content.decode(), newline=""), strict=True)
        if "epoch" not in (rows.fieldnames or ["epoch"]):
            raise ValueError("it has no column epoch")
        rows = [{name: float(value) for name, value in row.items() if value} for row in rows]
    except (ValueError, TypeError, csv.Error) as error:
        raise RunError(f"{path} is damaged: it must be a table of numbers: {error}") from error
    for number, row in enumerate(rows, 1):
        if not row.get("epoch", 0) >= 1:
            raise RunError(f"{path} is damaged: row {number} must have an epoch of at least 1")
    return rows


def hardly_learned(history, settings, facts):
    """Why a finished training has hardly learned anything, in a few words; None if it has.

    Args:
        history: the rows of `read_history`.
        settings: the settings of the recipe, by name.
        facts: the facts about the corpus and the runs that the training began with, by name.
    """
    if not history:
        return None
    scores = [row["val_bleu"] for row in history if "val_bleu" in row]
    if scores and max(scores) < 1:
        return f"its best validation BLEU is {max(scores):.2f}"
    initialised = any(facts.get(name) for name in INITIAL)
    steps, warmup = history[-1].get("step"), settings.get("warmup_steps", 0)
    if settings.get("warmup", True) and not initialised and steps and steps < warmup:
        return f"it ended after {steps:,.0f} steps, in the warm-up of {warmup:,} steps"
    return None
