"""A history is the same after a round trip; a damaged one is refused."""

import pytest

from tfformer.files import RunError
from training.pictures.curves import curves_figure
from training.report.history import LOG, hardly_learned, read_history, write_history
from training.report.picture import write_picture

ROWS = [{"epoch": 1.0, "loss": 3.5}, {"epoch": 2.0, "loss": 2.5, "val_loss": 2.25, "val_bleu": 7.0}]


def test_a_history_comes_back_as_it_was_written(tmp_path):
    assert read_history(tmp_path) == []
    write_history(tmp_path, ROWS)
    assert read_history(tmp_path) == ROWS


@pytest.mark.parametrize(
    "content",
    [
        b"epoch,loss\n1,2,3\n",  # more values than columns
        b"epoch,loss\n1,x\n",
        b"epoch,loss\n1,2\n3\n,4\n",  # a row without its epoch
        b"loss\n2\n",
        b"epoch,loss\nnan,2\n",
        b"epoch,loss\n0,2\n",
        b"epoch\x00,loss\n1,2\n",
        b'epoch,loss\n1,"2\n',
        b"epoch," + b"l" * 200_000 + b"\n1,2\n",
        b"\xff\xfe\x00epoch",
        bytes(999),
    ],
)
def test_damaged_history_is_refused(content, tmp_path):
    (tmp_path / LOG).write_bytes(content)
    with pytest.raises(RunError, match=f"{LOG} is damaged: "):
        read_history(tmp_path)


def test_curves_are_drawn_from_a_history_with_gaps(tmp_path):
    (tmp_path / LOG).write_text("epoch,val_bleu,loss\n1,inf,1e300\n7,,nan\n")
    figure = curves_figure(read_history(tmp_path), "val_bleu", "BLEU")
    write_picture(tmp_path / "curves.png", figure)
    assert (tmp_path / "curves.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("row", "facts", "reason"),
    [
        ({"step": 40, "val_loss": 5.0}, {}, "it ended after 40 steps, in the warm-up of 100 steps"),
        (
            {"step": 40, "val_loss": 5.0},
            {"init": None},
            "it ended after 40 steps, in the warm-up of 100 steps",
        ),
        ({"step": 40, "val_loss": 5.0}, {"init": {"run": "a"}}, None),
        ({"step": 100, "val_loss": 5.0}, {}, None),
        ({"step": 400, "val_bleu": 0.02}, {"init": {}}, "its best validation BLEU is 0.02"),
        ({"step": 400, "val_bleu": 1.0}, {}, None),
    ],
)
def test_hardly_learned_returns_the_reason_or_none(row, facts, reason):
    assert hardly_learned([{"epoch": 1, **row}], {"warmup_steps": 100}, facts) == reason


def test_hardly_learned_returns_none_without_warm_up_or_history():
    settings = {"warmup_steps": 100, "warmup": False}
    assert hardly_learned([{"epoch": 1, "step": 4}], settings, {}) is None
    assert hardly_learned([], settings, {}) is None
