"""The history of a run, `log.csv` of its directory: a row an epoch, numbers by name."""

import csv
import io
from pathlib import Path

LOG = "log.csv"


def write_history(directory, rows):
    """Writes the rows, dicts of numbers, as CSV; replaced whole, never half written."""
    from tfformer.files import write_atomically

    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(Path(directory) / LOG, text.getvalue().encode())


def read_history(directory):
    """The rows of a run directory, numbers by name; none if it has no history."""
    path = Path(directory) / LOG
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        return [{name: float(value) for name, value in row.items() if value} for row in rows]
