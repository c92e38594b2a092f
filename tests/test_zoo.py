"""The zoo of notebook 15: the healthy model is the library's, and each bug fails its checks."""

import re

import keras
import numpy as np
import pytest
from paths import ROOT

from benchmarks.learning import zoo as measured
from docs.tutorial import zoo

# What catches each bug, by its reason: those of masks show in all three checks of masks.
MASKS = {"hides_the_answer", "sees_what_is_before", "ignores_padding"}
CAUGHT = {
    "MultipliedMask": MASKS,
    "MaskedAfter": MASKS,
    "SeesNext": MASKS,
    "BlindToItself": MASKS,
    "EitherMask": MASKS,
    "SeesPadding": {"ignores_padding"},
    "KeysOfQueries": {"reads_the_source", "reads_the_order", "learns_with_each_matrix"},
    "QueriesAsKeys": {"learns_with_each_matrix"},
    "NoRootOfKeys": {"scales_the_scores"},
    "NoOutputMatrix": {"learns_with_each_matrix"},
    "NormOverSentence": {"hides_the_answer", "ignores_padding"},
    "NoResidual": {"keeps_its_input"},
    "NoRootOfModel": {"scales_the_embeddings"},
    "NoPositions": {"reads_the_order"},
    "NotShifted": {"hides_the_answer"},
    "WrongSmoothing": {"smooths_by_hand"},
}


def test_every_bug_has_expected_checks():
    assert [bug.__name__ for bug in zoo.BUGS] == list(CAUGHT)


def test_the_healthy_model_passes_all_checks():
    assert zoo.failed(zoo.Healthy) == []


@pytest.mark.parametrize("bug", zoo.BUGS, ids=list(CAUGHT))
def test_a_bug_fails_its_checks(bug):
    assert {check.__name__ for check in zoo.failed(bug)} == CAUGHT[bug.__name__]


def test_each_check_fails_for_some_bug():
    assert set().union(*CAUGHT.values()) == {check.__name__ for check in zoo.CHECKS}


@pytest.mark.parametrize("bug", zoo.BUGS, ids=list(CAUGHT))
def test_each_bug_changes_one_line(bug):
    right, wrong = zoo.lines_of(bug)
    assert right.startswith("return ") and wrong.startswith("return ") and right != wrong


def test_the_healthy_model_has_the_logits_of_the_library():
    keras.utils.set_random_seed(1)
    model, draw = zoo.Healthy(), np.random.default_rng(1)
    for weight in model.trainable_weights:  # no bias is 0
        weight.assign(weight + draw.normal(scale=0.05, size=weight.shape))
    source_ids, labels = map(zoo.to_ids, zip(*zoo.PAIRS[:20], strict=True))
    assert (labels == 0).any()
    inputs = {"source_ids": source_ids, "target_ids": model.read(labels)}
    ours, theirs = model((source_ids, labels)), zoo.of_the_library(model)(inputs)
    real = labels != 0
    np.testing.assert_allclose(np.array(ours)[real], np.array(theirs)[real], atol=1e-4)


def test_text_round_trips_through_ids():
    texts = [target for _, target in zoo.PAIRS]
    assert [zoo.to_text(ids) for ids in zoo.to_ids(texts)] == texts


def test_the_loss_is_the_cross_entropy_without_padding():
    """Of two labels with probabilities 1/2 and 1/4, by hand; the third is padding."""
    others = zoo.VOCABULARY_SIZE - 1
    logits = np.zeros((1, 3, zoo.VOCABULARY_SIZE), "float32")
    logits[0, 0, 5], logits[0, 1, 6] = np.log(others), np.log(others / 3)
    loss = zoo.Healthy().cross_entropy(np.array([[5, 6, 0]]), logits)
    np.testing.assert_allclose(loss, (np.log(2) + np.log(4)) / 2, rtol=1e-5)


def test_the_measured_table_has_each_bug_with_its_checks():
    page = (ROOT / "docs" / "measured" / "methods.md").read_text(encoding="utf-8")
    section = page.split("\n## A zoo of bugs\n")[1].split("\n## ")[0]
    cells = [row.strip("| ").split(" | ") for row in section.splitlines() if "±" in row]
    expected = {bug.__doc__: CAUGHT[bug.__name__] for bug in zoo.BUGS}
    found = {name: set(re.findall(r"`(\w+)`", failed)) for name, *_, failed in cells}
    assert found == {"no bug": set()} | expected


def test_measured_training_is_not_repeated(tmp_path, monkeypatch, capsys):
    seeds = []
    monkeypatch.setattr(zoo, "BUGS", [])
    monkeypatch.setattr(zoo, "trained", lambda _, seed: (seeds.append(seed), [9.0, seed / 2]))
    monkeypatch.setattr(zoo, "translated", lambda _: [target for _, target in zoo.UNSEEN])
    for _ in range(2):
        assert measured.main(["--out", str(tmp_path), "--seeds", "1", "2"]) == 0
        row = "| no bug | 2 | 0.750 ± 0.354 | 100.0 ± 0.0 | none |\n"
        assert capsys.readouterr().out.endswith(row)
    assert seeds == [1, 2]
