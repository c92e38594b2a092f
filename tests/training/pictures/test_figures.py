"""Each figure shows the given numbers and names its axes."""

import itertools
import math

import numpy as np
import pytest
from matplotlib.text import Text

from tfformer.schedule import WarmupSchedule
from training.pictures import attention, beams, curves, masks, positions, probabilities
from training.pictures.inside import Tree
from training.report import picture_style
from training.report.picture import pyplot, write_picture

QUERIES, KEYS = ["▁ein", "▁$", "</s>"], ["▁a", "▁house", ".", "</s>"]


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot().close("all")


@pytest.fixture
def weights(rng):
    return rng.dirichlet(np.ones(4), (2, 5, 3))  # 2 layers, 5 heads


def words(labels):
    return [label.get_text() for label in labels]


def test_heads_figure_has_one_map_per_head(weights):
    figure = attention.heads_figure(weights, QUERIES, KEYS, "cross", ("written", "source"))
    panels = [ax for ax in figure.axes if ax.images]
    assert len(panels) == 10
    for n, ax in enumerate(panels):
        np.testing.assert_array_equal(ax.images[0].get_array(), weights[n // 5, n % 5])
    titles = [ax.get_title() for ax in panels]
    assert titles == [f"layer {n // 5 + 1}, head {n % 5 + 1}" for n in range(10)]
    assert [bool(words(ax.get_xticklabels())) for ax in panels] == [False] * 8 + [True] * 2
    corner = panels[9]  # of three rows of two, the last one has one map
    assert words(corner.get_yticklabels()) == QUERIES and words(corner.get_xticklabels()) == KEYS
    assert (corner.get_ylabel(), corner.get_xlabel()) == ("written", "source")


def test_lines_figure_draws_weights_above_the_minimum(weights):
    figure = attention.lines_figure(weights, QUERIES, KEYS, minimum=0.3)
    for layer, ax in enumerate(figure.axes):
        assert len(ax.lines) == (weights[layer] >= 0.3).sum()
        assert words(ax.texts) == [*QUERIES, *KEYS]
        shares = sorted(line.get_alpha() for line in ax.lines)
        np.testing.assert_allclose(shares, np.sort(weights[layer][weights[layer] >= 0.3]))
        assert {line.get_color() for line in ax.lines} <= set(picture_style.COLOURS[:5])


# a | b c | c ends, and b's other child; beam 3 stays empty.
TREE = Tree(
    pieces=[["a", "b", "c"], ["d", "</s>", "e"], ["</s>", "", ""]],
    parents=[[0, 0, 0], [0, 1, 0], [0, 1, -1]],
    scores=[[-1, -2, -3], [-1.5, -2.5, -3.5], [-1.7, -2.5, -math.inf]],
    best=[0, 0, 0],
)


def test_beams_figure_colours_best_kept_and_cut_beams():
    assert beams.survivors(TREE) == {(2, 0), (2, 1), (1, 0), (1, 1), (0, 0), (0, 1)}
    (ax,) = beams.beams_figure(TREE).axes
    shown = {text.get_text(): text.get_color() for text in ax.texts}
    assert shown["c\n-3.00"] == shown["e\n-3.50"] == beams.CUT
    assert shown["b\n-2.00"] == shown["·\n-2.50"] == beams.KEPT
    assert shown["a\n-1.00"] == shown["d\n-1.50"] == shown["</s>\n-1.70"] == beams.BEST
    assert len(ax.lines) == 8  # of nine positions one is empty
    assert ax.get_xlabel() == "step; below each piece its score" and ax.get_ylabel() == "beam"


def test_a_long_tree_goes_on_below_and_repeats_the_last_step():
    steps = beams.STEPS + 2
    pieces, scores = [[f"p{n}"] for n in range(steps)], [[-n] for n in range(steps)]
    figure = beams.beams_figure(Tree(pieces, [[0]] * steps, scores, [0] * steps))
    first, second = ([text.get_text() for text in ax.texts] for ax in figure.axes)
    assert first == ["begin", *(f"p{n}\n{-n:.2f}" for n in range(beams.STEPS))]
    assert second == [f"p{n}\n{-n:.2f}" for n in range(beams.STEPS - 1, steps)]
    assert sum(len(ax.lines) for ax in figure.axes) == steps
    [legend] = figure.legends
    assert words(legend.get_texts()) == ["chosen"]


def test_dot_products_of_sinusoids_depend_on_the_distance_alone():
    angles = np.arange(11)[:, None] / np.array([1, 7, 49])
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    above, below, _ = positions.positions_figure(table).axes
    np.testing.assert_array_equal(above.images[0].get_array(), table)
    found = {}
    for line in below.lines:
        for distance, product in zip(line.get_xdata(), line.get_ydata(), strict=True):
            assert found.setdefault(abs(int(distance)), product) == pytest.approx(product)
    assert found[0] == pytest.approx(3)


def test_masks_by_hand():
    figure = masks.masks_figure(["a", "b", "-"], ["x", "-"], np.array([1, 1, 0], bool),
                                np.array([1, 0], bool))  # fmt: skip
    maps = {ax.get_title(): ax.images[0].get_array().astype(int).tolist() for ax in figure.axes}
    assert maps == {
        "encoder: padding": [[1, 1, 0]] * 3,
        "decoder: padding": [[1, 0]] * 2,
        "decoder: the future": [[1, 0], [1, 1]],
        "decoder: both": [[1, 0], [1, 0]],
        "cross-attention: padding": [[1, 1, 0]] * 2,
    }
    assert all(ax.get_xlabel() == "key" and ax.get_ylabel() == "query" for ax in figure.axes)


def test_tokens_figure_shows_probabilities_and_their_product():
    (ax,) = probabilities.tokens_figure(QUERIES, np.log([0.5, 0.25, 1.0])).axes
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [0.5, 0.25, 1.0])
    assert ax.get_title() == f"log P of all of it: {math.log(0.125):.2f}"
    assert words(ax.get_xticklabels()) == QUERIES


def test_a_label_is_shown_however_unlikely_it_is():
    labels = np.array([4, 0])
    probs = np.array([[0.1, 0.3, 0.4, 0.15, 0.05], [0.6, 0.1, 0.1, 0.1, 0.1]])
    ids = probabilities.likeliest(labels, probs, maximum=3)
    assert ids[0].tolist() == [2, 1, 4] and ids[1, 0] == 0
    names = [[f"p{n}" for n in row] for row in ids]
    figure = probabilities.distributions_figure(labels, probs, ids, names, 0.1)
    first = figure.axes[0]
    target, learned = [bar.get_height() for bar in first.patches[:3]], first.patches[3:]
    np.testing.assert_allclose(target, [0.02, 0.02, 0.92])
    np.testing.assert_allclose([bar.get_height() for bar in learned], [0.4, 0.3, 0.05])
    assert first.get_title() == "1: p4" and words(first.get_xticklabels()) == ["p2", "p1", "p4"]
    [only] = probabilities.distributions_figure(labels, probs, ids, names, 0.1, [1]).axes
    assert only.get_title() == "2: p0"


def test_curves_skip_values_missing_in_an_epoch():
    rows = [{"epoch": 1, "loss": 3, "learning_rate": 0.1}]
    rows += [{"epoch": 2, "loss": 2, "learning_rate": 0.05, "val_loss": 2.5, "val_bleu": 7}]
    rate, loss, score = curves.curves_figure(rows, "val_bleu", "BLEU").axes
    assert [list(line.get_ydata()) for line in loss.lines] == [[3, 2], [2.5]]
    assert list(rate.lines[0].get_ydata()) == [0.1, 0.05]
    assert list(score.lines[0].get_xdata()) == [2] and score.get_ylabel() == "BLEU"


def test_figure_is_written_as_png_and_svg(tmp_path, weights):
    figure = attention.heads_figure(weights, ["دار", "$x$", "дом"], KEYS)
    write_picture(tmp_path / "a.png", figure, tmp_path / "a.svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    assert not pyplot().get_fignums()


def test_the_learning_rate_shows_a_warm_up_inside_the_first_epoch():
    schedule = WarmupSchedule(64, warmup_steps=30)
    rows = [{"epoch": n, "step": 100 * n, "loss": 3, "val_bleu": 7} for n in (1, 2, 3)]
    for row in rows:
        row["learning_rate"] = float(schedule(row["step"]))
    logged, line = curves.curves_figure(rows, "val_bleu", "BLEU", schedule).axes[0].lines
    assert logged.get_xdata().tolist() == [100, 200, 300] and logged.get_linestyle() == "None"
    steps, rates = map(list, line.get_data())
    assert steps[rates.index(max(rates))] == 29  # its 30th update
    assert max(rates) == pytest.approx((64 * 30) ** -0.5)
    assert steps[0] == 0 and steps[-1] == 300
    # The last session had other settings: from there on, the line follows the log.
    rows[2]["learning_rate"] = 0.5
    rate, loss, score = curves.curves_figure(rows, "val_bleu", "BLEU", schedule).axes
    steps, rates = map(list, rate.lines[1].get_data())
    assert steps[-2:] == [200, 300] and rates[-1] == 0.5
    assert list(loss.lines[0].get_xdata()) == list(score.lines[0].get_xdata()) == [100, 200, 300]
    # If no learning rate agrees, or without steps, the line follows the log.
    rows[0]["learning_rate"] = 0.5
    assert len(curves.curves_figure(rows, "val_bleu", "BLEU", schedule).axes[0].lines) == 1
    del rows[0]["step"]
    (line,) = curves.curves_figure(rows, "val_bleu", "BLEU", schedule).axes[0].lines
    assert list(line.get_xdata()) == [1, 2, 3]


@pytest.mark.parametrize("count", [3, 60])
def test_labels_do_not_overlap(count, rng):
    pieces = [f"▁word{n}" for n in range(count)]
    heads = attention.heads_figure(rng.dirichlet(np.ones(count), (1, 2, count)), pieces, pieces)
    heads.draw_without_rendering()
    boxes = [label.get_window_extent() for label in heads.axes[0].get_yticklabels()]
    assert all(above.y0 >= below.y1 for above, below in itertools.pairwise(boxes))


def test_a_sentence_of_14_pieces_is_readable_on_a_phone(rng):
    """The smallest label has about 7 points if the picture is 3.75 inches wide."""
    count = 14
    pieces, real = [f"▁word{n}" for n in range(count)], np.ones(count, bool)
    weights, probs = rng.dirichlet(np.ones(count), (2, 4, count)), np.full((count, 5), 0.2)
    ids = np.tile(np.arange(5), (count, 1))
    names = [pieces[:5]] * count
    tree = Tree([["▁word"] * 4] * count, [[0, 0, 1, 2]] * count, [[-1.0] * 4] * count, [0] * count)
    for figure in (
        attention.heads_figure(weights, pieces, pieces),
        attention.lines_figure(weights, pieces, pieces),
        beams.beams_figure(tree),
        masks.masks_figure(pieces, pieces, real, real),
        positions.positions_figure(weights[0, 0]),
        probabilities.tokens_figure(pieces, np.zeros(count)),
        probabilities.distributions_figure(ids[:, 0], probs, ids, names, 0.1),
    ):
        sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
        assert min(sizes) * 3.75 / figure.get_figwidth() > 6.5
