"""The log row of an epoch."""

import math
import re
from types import SimpleNamespace

import pytest
from terminal import terminal

from tfformer.terminal.progress_bar import console
from training.report.picture import pyplot
from training.report.progress import EpochProgress, going_on, shortened, write_curve
from training.tasks import TASKS


def epoch(tokens, first=0, before=None, output=None):
    """The row of an epoch of 7 batches; those with these tokens are computed now."""
    figures, output = TASKS["translation"].figures, output or console(quiet=True)
    bar = EpochProgress(2, 3, 7, first, iter(tokens), figures, output, before)
    optimizer = SimpleNamespace(iterations=14, learning_rate=0.5)
    bar.set_model(SimpleNamespace(optimizer=optimizer, metrics=[]))
    with bar.shown():
        for n in range(len(tokens)):
            bar.on_train_batch_end(n, {"loss": 1.7, "accuracy": 0.3, "perplexity": math.e**2})
    return bar.row()


def test_epoch_row_has_loss_learning_rate_and_tokens():
    row = epoch([11, 13])
    assert row["loss"] == pytest.approx(2) and row["accuracy"] == 0.3
    assert row["learning_rate"] == 0.5 and row["tokens"] == 24


def test_resumed_epoch_includes_earlier_tokens_and_time():
    row = epoch([30, 20], first=5, before={"tokens": 1000, "tokens_per_second": 10.0})
    assert row["tokens"] == 1050
    assert row["tokens"] / row["tokens_per_second"] == pytest.approx(100, abs=1)
    # A checkpoint of a version that did not count tokens.
    assert epoch([30, 20], first=5, before={"tokens_per_second": 10.0})["tokens"] == 50


def test_progress_bar_shows_count_time_and_loss_in_80_columns():
    output = terminal(80)
    epoch([11, 13], first=3, output=output)
    row = output.file.rows()[-1]
    assert re.search(r"^epoch 2/3 .* 5/7 loss 1.700  accuracy 30.0 % .*:\d\d$", row)
    assert len(row) <= 80


def test_resume_message_gives_position_and_used_time():
    between = {"epoch": 3, "batch": 0, "seconds": 312.0}
    assert going_on(between, 1234) == "goes on after epoch 3, step 1,234, 5.2 minutes"
    limited = going_on(between, 1234, 30)
    assert limited.endswith("5.2 minutes; of 30 minutes (--max-minutes), 5.2 are used")
    inside = {"epoch": 0, "batch": 40, "seconds": 6.0}
    assert going_on(inside, 40) == "goes on in epoch 1, after step 40, 0.1 minutes"


def test_a_long_text_is_cut_to_100_characters():
    assert shortened("ä" * 100) == "ä" * 100
    assert shortened("ä" * 101) == "ä" * 99 + "…"
    assert shortened("a " * 60) == "a " * 49 + "a…"


def test_the_axis_of_a_score_does_not_cut_its_maximum(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("training.report.picture.write_picture", lambda _, one: drawn.append(one))
    rows = [{"epoch": n, "loss": 1, "val_loss": 1, "val_bleu": 100.0} for n in (1, 2)]
    write_curve(tmp_path / "curve.png", rows, TASKS["translation"])
    bottom, top = drawn[0].axes[1].get_ylim()
    assert bottom == 0 and top > 100
    pyplot().close(drawn[0])
