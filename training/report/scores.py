"""The scores of a run's model on test sets: `scores.json` of a run directory.

A list, each of what `training.evaluate` gives with

    test_set, sha256    its name, and what is in it
    weights             the model's file: scores of an earlier model are forgotten
    date                of the evaluation
"""

import hashlib
from datetime import date
from pathlib import Path

from tfformer.files import RunError, read_json, write_json
from tfformer.run import read_config

SCORES = "scores.json"
# What makes two evaluations one and the same.
IDENTITY = ("sha256", "search", "length_penalty")


def digest(pairs):
    """The sha256 of a test set's texts, whatever its files are called."""
    found = hashlib.sha256()
    for pair in pairs:
        found.update(f"{pair.source}\n{pair.target}\n".encode())
    return found.hexdigest()


def read_scores(directory):
    """The scores of the model that is in the run directory, none if there are none.

    Raises:
        RunError: they are damaged, or the directory is no run.
    """
    path, weights = Path(directory) / SCORES, read_config(directory)["weights"]
    entries = read_json(path, list) if path.exists() else []
    try:
        return [entry for entry in entries if entry["weights"] == weights]
    except (TypeError, KeyError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def add_scores(directory, scores, test_set, pairs, weights):
    """Adds what an evaluation has found, in place of what the same one found before.

    Args:
        directory: the run directory.
        scores: as `training.evaluate.evaluate` gives them.
        test_set: its name.
        pairs: the pairs.
        weights: the file of the model that was scored, as `config.json` names it.
    """
    entry = {"test_set": test_set, "sha256": digest(pairs), "weights": weights}
    entry |= {"date": str(date.today()), **scores}
    kept = [
        other
        for other in read_scores(directory)
        if any(other.get(name) != entry.get(name) for name in IDENTITY)
    ]
    write_json(Path(directory) / SCORES, [*kept, entry])
