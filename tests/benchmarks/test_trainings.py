"""Parallel trainings have a core each; their table has means and deviations."""

import json
import os
from pathlib import Path

from benchmarks.ablation import COLUMNS
from benchmarks.learning import trainings


class Made:
    """A training with a fixed result; `call` receives its arguments."""

    def __init__(self, row, figures, folder=Path(), arguments=()):
        self.row, self.found, self.arguments = row, figures, arguments
        self.run, self.log = folder / row, folder / f"{row}.log"

    def figures(self):
        return self.found

    def finish(self, call):
        call(self.arguments, self.log)


def test_table_has_mean_and_deviation_of_each_row():
    minutes = {"minutes": 3.4, "loss": 1.0, "pairs": 5}
    made = [
        Made(row, bleu and minutes | {"bleu": bleu})
        for row, bleu in [
            ("a", 40.0),
            ("b", 41.5),
            ("c", 7.0),
            ("a", 43.0),
            ("b", 41.5),
            ("c", None),
        ]
    ]
    assert trainings.table(made, COLUMNS).splitlines() == [
        "| | seeds | minutes | training loss | BLEU, 13a |",
        "|---|--:|--:|--:|--:|",
        "| a | 2 | 3 | 1.00 ± 0.00 | 41.50 ± 2.12 |",
        "| b | 2 | 3 | 1.00 ± 0.00 | 41.50 ± 0.00 |",
        "| c | 1 | 3 | 1.00 | 7.00 |",
    ]


def test_each_training_gets_one_core_and_a_failure_stops_no_other(tmp_path, capsys):
    (tmp_path / "which_core.py").write_text(
        "import os, sys, time\n"
        "print(sorted(os.sched_getaffinity(0)))\n"
        "sys.exit(sys.argv[1] == 'fails')\n"
    )
    folder = Path.cwd()
    os.chdir(tmp_path)
    try:
        trainings.side_by_side(
            [Made(name, None, tmp_path, ["which_core", name]) for name in ("fails", "a", "b", "c")]
        )
    finally:
        os.chdir(folder)
    said = capsys.readouterr().err.splitlines()
    assert sorted(said) == sorted(
        [f"{tmp_path / name} is finished" for name in "abc"]
        + [f"which_core ended with 1: see {tmp_path / 'fails.log'}"]
    )
    cores = [json.loads((tmp_path / f"{name}.log").read_text()) for name in ("fails", *"abc")]
    assert all(len(core) == 1 and core[0] in os.sched_getaffinity(0) for core in cores)
