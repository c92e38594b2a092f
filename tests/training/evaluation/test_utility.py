"""BLEU and chrF of all pairs of texts, compared with sacreBLEU's for each pair."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from training.evaluation.utility import UTILITIES

WORDS = "Ein Mann, der 3,5 Hunde (und  eine Katze) am See füttert. groß-artig !".split(" ")
ORACLES = {"bleu": BLEU(effective_order=True), "chrf": CHRF()}


def texts(seed, count):
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, 11))) for _ in range(count)]


@pytest.mark.parametrize("name", UTILITIES)
def test_scores_equal_sacrebleu(name):
    ours, theirs = [*texts(1, 13), "", "."], [*texts(2, 7), "Ein", "Ja."]
    expected = [[ORACLES[name].sentence_score(a, [b]).score for b in theirs] for a in ours]
    found = UTILITIES[name](ours, theirs)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert found.shape == (15, 9)
    assert len(np.unique(found)) > 40


@pytest.mark.parametrize("name", UTILITIES)
def test_a_text_is_most_like_itself(name):
    same = [" ".join(WORDS), "Ein Mann am See", "großartig"]
    found = UTILITIES[name](same, same)
    np.testing.assert_allclose(np.diag(found), 100.0)
    assert (found.argmax(axis=1) == [0, 1, 2]).all()
