"""Stores the scores of a run's model on test sets in `scores.json` of the run directory.

The file is a list. Each entry has the scores of `training.evaluate` and

    test_set, sha256    the name of the test set, and the hash of its texts
    weights             the model's file: scores of an earlier model are dropped
    date                of the evaluation
"""

import hashlib
from datetime import date
from pathlib import Path

from tfformer.files import RunError, read_json, write_json
from tfformer.run import read_config

SCORES = "scores.json"
# Two evaluations with the same values of these fields are the same.
IDENTITY = ("sha256", "search", "length_penalty")


def measures_table(title):
    """An empty table for the scores of an evaluation: measure, value, how it is counted."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title))
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("how it is counted", overflow="fold")
    return table


def digest(pairs):
    """The sha256 of a test set's texts. It does not depend on file names."""
    found = hashlib.sha256()
    for pair in pairs:
        found.update(f"{pair.source}\n{pair.target}\n".encode())
    return found.hexdigest()


def read_scores(directory):
    """The scores of the current model of the run directory; [] if there are none."""
    path, weights = Path(directory) / SCORES, read_config(directory)["weights"]
    entries = read_json(path, list) if path.exists() else []
    try:
        return [entry for entry in entries if entry["weights"] == weights]
    except (TypeError, KeyError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def add_scores(directory, scores, test_set, pairs, weights):
    """Adds the scores of `training.evaluate.evaluate`. They replace those of the same evaluation.

    `test_set` is its name, `weights` the file of the scored model.
    """
    entry = {"test_set": test_set, "sha256": digest(pairs), "weights": weights}
    entry |= {"date": str(date.today()), **scores}
    kept = [
        other
        for other in read_scores(directory)
        if any(other.get(name) != entry.get(name) for name in IDENTITY)
    ]
    write_json(Path(directory) / SCORES, [*kept, entry])
