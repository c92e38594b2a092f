"""The benchmark of training steps: models of equal size, and its table."""

from benchmarks.learning import steps


def test_the_models_have_equally_many_parameters():
    counts = [steps.compiled(*row).count_params() for row in steps.ROWS.values()]
    assert max(counts) < 1.01 * min(counts)


def test_the_first_row_is_the_measure_of_the_others(monkeypatch, capsys):
    small = {"d_model": 16, "d_ff": 32, "num_heads": 2}
    rows = {"Transformer": ("encoder-decoder", 1, small), "other": ("recurrent", 2, {"d_model": 8})}
    monkeypatch.setattr(steps, "ROWS", rows)
    assert steps.main(["--pairs", "2", "--length", "3", "--rounds", "1"]) == 0
    *_, head, line, first, second = capsys.readouterr().out.splitlines()
    assert head.count("|") == line.count("|") == first.count("|") == second.count("|") == 7
    assert first.startswith("| Transformer | 1 + 1 | 16 |") and first.endswith("| 1.00 |")
    assert second.startswith("| other | 2 + 2 | 8 |")
