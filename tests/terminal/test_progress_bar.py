"""The progress bar is shown on a terminal and is not written to a log."""

import re

import pytest
from terminal import terminal

from tfformer.terminal.progress_bar import Bar, console, fitting

TIME = r"(-:--:--|\d+:\d\d:\d\d)"


@pytest.mark.parametrize(("width", "shown"), [(80, 1), (140, 3)])
def test_narrow_bar_drops_figures_but_keeps_count_and_time(width, shown):
    output, figures = terminal(width), ["loss 5.123", "accuracy 12.3 %", "lr 1.23e-03, and more"]
    with Bar("epoch 12/20 of a [red]long[/red] training", 67_890, 7, output=output) as bar:
        bar.to(12_345, figures)
    last = output.file.rows()[-1]
    assert re.search(rf" 12,345/67,890 .* {TIME}$", last)
    assert len(last) <= width
    assert [figure in last for figure in figures] == [n < shown for n in range(3)]
    assert "of a [red]"[: width // 3 - 13] in last


def test_unknown_total_shows_only_the_count():
    output = terminal(80)
    with Bar("learning", unit="texts", output=output) as bar:
        assert list(bar.over(iter(range(1000)))) == list(range(1000))
        bar.advance(24)
    assert bar.done == 1024
    assert re.search(rf"^learning .* 1,024 texts .*{TIME}$", output.file.rows()[-1])


def test_log_gets_only_plain_lines_and_no_bar(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # for users who want colours in logs
    with Bar("exporting", unit="steps") as bar:
        bar.step("writing ...")
        bar.step("warning: a file was there")
        bar.to(bar.done + 5, ["a figure"])
    assert not bar.shown and bar.done == 1 + 5
    assert capsys.readouterr() == ("", "writing ...\nwarning: a file was there\n")
    assert not Bar("", output=console(quiet=True)).shown
    assert not Bar("", output=terminal(80, "dumb")).shown and Bar("", output=terminal(80)).shown


def test_fitting_drops_texts_beyond_the_width():
    assert fitting(["abc", "de", "f"], 10) == "abc  de  f"
    assert fitting(["abc", "de", "f"], 9) == "abc  de"
    assert fitting(["abc"], 2) == fitting([], -1) == ""
