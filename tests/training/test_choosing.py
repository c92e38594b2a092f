"""The best of several translations: by hand, by sacreBLEU, and with a model of random weights."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from sacrebleu.metrics import CHRF

from tfformer import Translator
from training.choosing import (
    BestOf,
    Candidates,
    Choice,
    best,
    candidates_of,
    expected_utility,
    features_of,
    reversed_words,
)

TEXTS = ["a little house", "", "by the lake", "nobody in it with trees"]
LIKELY, ALONE, OTHER = "a house by the lake", "trees", "a house by the trees"


def candidates(**changes):
    known = {
        "texts": [LIKELY, ALONE, OTHER],
        "scores": np.array([-1.0, -0.9, -2.0]),
        "log_probs": np.log([0.3, 0.4, 0.3]),
        "drawn": np.zeros(3),
    }
    return Candidates(**{**known, **changes})


def test_the_risk_is_least_where_the_others_agree():
    """ALONE is the likeliest, but two of three say much the same otherwise."""
    one = candidates()
    chrf = CHRF()
    expected = [
        sum(
            p * chrf.sentence_score(text, [other]).score
            for other, p in zip(one.texts, (0.3, 0.4, 0.3), strict=True)
        )
        for text in one.texts
    ]
    np.testing.assert_allclose(expected_utility(one, "chrf"), expected)
    assert best("x", one, Choice(3, utility="chrf"), np.zeros([3, 2])) != ALONE
    assert best("x", one, Choice(3), np.zeros([3, 2])) == ALONE


def test_what_was_drawn_counts_as_often_as_it_was():
    one = candidates(drawn=np.array([1.0, 5.0, 0.0]))
    chrf = CHRF()
    weighed = zip((LIKELY, ALONE), (1 / 6, 5 / 6), strict=True)
    expected = sum(p * chrf.sentence_score(OTHER, [text]).score for text, p in weighed)
    assert expected_utility(one, "chrf")[2] == pytest.approx(expected)
    assert best("x", one, Choice(3, samples=6, utility="chrf"), np.zeros([3, 2])) == ALONE


def test_the_weights_of_other_models_count():
    features = np.array([[-1.0, -4.0], [-3.0, -1.0], [-1.0, -1.0]])
    for weights, expected in (((0.0, 0.0), ALONE), ((0.5, 0.0), LIKELY), ((9.0, 9.0), OTHER)):
        choice = Choice(3, backward_weight=weights[0], right_to_left_weight=weights[1])
        assert best("x", candidates(), choice, features) == expected


@pytest.fixture(scope="module")
def translator():
    return tiny.translator_served()


def test_candidates_are_those_of_the_search_and_of_the_draws(translator):
    found = candidates_of(translator, TEXTS, n_best=5, samples=3)
    for text, one in zip(TEXTS, found, strict=True):
        assert len(set(one.texts)) == len(one.texts) == len(one.scores) == len(one.log_probs)
        assert one.drawn.sum() == 3
        answer = translator.functions["beam_search"]([text], beam_width=5)
        beams = [x.decode() for x in answer["translations"][0].numpy()]
        assert one.texts[: len(dict.fromkeys(beams))] == [*dict.fromkeys(beams)]
        assert one.scores[0] == pytest.approx(answer["scores"][0, 0].numpy(), abs=1e-4)
        drawn = translator.functions["sample"]([text] * 3, seed=0)["translation"].numpy()
        times = dict(zip(one.texts, one.drawn, strict=True))
        assert {x.decode(): list(drawn).count(x) for x in drawn} == {
            x: n for x, n in times.items() if n
        }
    assert any(len(one.texts) > 3 for one in found)


def test_what_other_models_say_is_the_mean_of_a_token(translator):
    found = candidates_of(translator, TEXTS, n_best=3)
    features = features_of(TEXTS, found, Choice(3, backward=translator, right_to_left=translator))
    for text, one, rows in zip(TEXTS, found, features, strict=True):
        assert rows.shape == (len(one.texts), 2)
        for candidate, row in zip(one.texts, rows, strict=True):
            for pair, value in zip(
                ((candidate, text), (text, reversed_words(candidate))), row, strict=True
            ):
                answer = translator.functions["score"](*(tf.constant([x]) for x in pair))
                expected = answer["log_prob"][0] / tf.cast(answer["length"][0], tf.float32)
                assert value == pytest.approx(float(expected), rel=1e-4)
    assert reversed_words("Der Hund  bellt.") == "bellt. Hund Der"


@pytest.mark.parametrize("utility", ["bleu", None])
def test_no_choice_depends_on_other_texts(translator, utility):
    choice = Choice(4, utility=utility)
    chooser = BestOf(translator, choice)
    together = chooser.translate(TEXTS)
    assert together == [chooser.translate([text])[0] for text in TEXTS]
    assert together[1] == ""
    if utility is None:  # by the score alone it is the search's own best
        beams = Translator(translator.model, translator.tokenizer, **tiny.SERVED, beam_width=4)
        assert together == beams.translate(TEXTS)


def test_how_it_chooses_is_said(translator):
    facts = BestOf(translator, Choice(7, samples=5, utility="chrf")).search_facts()
    assert facts["search"] == "beam 4, minimum Bayes risk by chrf, 7 best and 5 samples"
    choice = Choice(7, backward=translator, backward_weight=0.5)
    assert choice.describe() == "reranked by backward 0.5, 7 best"
    with pytest.raises(ValueError, match="greedy must be False"):
        BestOf(translator, choice).translate(TEXTS, greedy=True)
