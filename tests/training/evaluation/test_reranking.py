"""The choice among several translations: by hand, by sacreBLEU, and with a model of random
weights."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from sacrebleu.metrics import CHRF

from training.evaluation import search_options as searching
from training.evaluation.reranking import (
    UTILITIES,
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
NOTHING = np.zeros([3, 2])  # the scores of other models
LIKELY, ALONE, OTHER = "a house by the lake", "trees", "a house by the trees"


def candidates(**changes):
    known = {
        "texts": [LIKELY, ALONE, OTHER],
        "scores": np.array([-1.0, -0.9, -2.0]),
        "log_probs": np.log([0.3, 0.4, 0.3]),
        "drawn": np.zeros(3),
    }
    return Candidates(**{**known, **changes})


def test_minimum_risk_chooses_a_candidate_similar_to_others():
    """ALONE is the most likely, but two of three are similar to each other."""
    one, chrf = candidates(), CHRF()
    expected = [
        sum(
            p * chrf.sentence_score(text, [other]).score
            for other, p in zip(one.texts, (0.3, 0.4, 0.3), strict=True)
        )
        for text in one.texts
    ]
    np.testing.assert_allclose(expected_utility(one, "chrf"), expected)
    assert best(one, Choice("chrf"), NOTHING) != ALONE
    assert best(one, Choice(), NOTHING) == ALONE


def test_samples_count_as_often_as_they_were_drawn():
    one, chrf = candidates(drawn=np.array([1.0, 5.0, 0.0])), CHRF()
    weighed = zip((LIKELY, ALONE), (1 / 6, 5 / 6), strict=True)
    expected = sum(p * chrf.sentence_score(OTHER, [text]).score for text, p in weighed)
    assert expected_utility(one, "chrf")[2] == pytest.approx(expected)
    assert best(one, Choice("chrf", samples=6), NOTHING) == ALONE


def test_weights_of_other_models_change_the_choice():
    features = np.array([[-1.0, -4.0], [-3.0, -1.0], [-1.0, -1.0]])
    for weights, expected in (((0.0, 0.0), ALONE), ((0.5, 0.0), LIKELY), ((9.0, 9.0), OTHER)):
        choice = Choice(backward_weight=weights[0], right_to_left_weight=weights[1])
        assert best(candidates(), choice, features) == expected


@pytest.fixture(scope="module")
def translator():
    return tiny.translator_served()


@pytest.mark.slow
def test_candidates_come_from_beam_search_and_samples(translator):
    """The samples need several batches, because a request may not have so many rows."""
    samples = tiny.SERVED["max_batch_size"] + 3
    found = candidates_of(translator, TEXTS, samples)
    for text, one in zip(TEXTS, found, strict=True):
        assert len(set(one.texts)) == len(one.texts) == len(one.scores) == len(one.log_probs)
        assert one.drawn.sum() == samples
        answer = translator.functions["beam_search"]([text])
        beams = [x.decode() for x in answer["translations"][0].numpy()]
        assert one.texts[: len(dict.fromkeys(beams))] == [*dict.fromkeys(beams)]
        assert one.scores[0] == pytest.approx(answer["scores"][0, 0].numpy(), abs=1e-4)
        function, rows = translator.functions["sample"], (samples - 3, 3)
        drawn = [
            x.decode()
            for seed, count in zip((0, samples - 3), rows, strict=True)
            for x in function([text] * count, seed=seed)["translation"].numpy()
        ]
        times = dict(zip(one.texts, one.drawn, strict=True))
        assert {x: drawn.count(x) for x in drawn} == {x: n for x, n in times.items() if n}
    assert any(len(one.texts) > 9 for one in found)


def test_probabilities_of_two_segmentations_of_one_text_are_added():
    class Same:
        def answer(self, texts):
            return {
                "translations": tf.constant([["a", "b", "a"]]),
                "scores": tf.constant([[-1.0, -2.0, -3.0]]),
                "token_log_probs": tf.math.log([[[0.5], [0.25], [0.125]]]),
            }

        functions = property(lambda self: {"beam_search": self.answer})
        max_batch_size = 1

    [one] = candidates_of(Same(), ["x"])
    assert one.texts == ["a", "b"] and one.scores.tolist() == [-1.0, -2.0]
    np.testing.assert_allclose(np.exp(one.log_probs), [0.625, 0.25])


@pytest.mark.slow
def test_features_are_mean_token_log_probs_of_other_models(translator):
    texts = TEXTS * 5  # with their candidates, more rows than a request may have
    found = candidates_of(translator, texts)
    assert sum(len(one.texts) for one in found) > tiny.SERVED["max_batch_size"]
    features = features_of(texts, found, Choice(backward=translator, right_to_left=translator))
    for text, one, rows in [*zip(texts, found, features, strict=True)][-4:]:
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
    chooser = BestOf(translator, Choice(utility))
    together = chooser.translate(TEXTS)
    assert together == [chooser.translate([text])[0] for text in TEXTS]
    assert together == chooser.translate(TEXTS, batch_size=3)
    assert together[1] == "" and chooser.translate([]) == []
    if utility is None:  # by the score alone it is the best of the search
        assert together == translator.translate(TEXTS)


def test_search_facts_describe_the_choice(translator):
    facts = BestOf(translator, Choice("chrf", samples=5)).search_facts()
    assert facts["search"] == "beam 4, minimum Bayes risk by chrf over 5 samples"
    choice = Choice(backward=translator, backward_weight=0.5)
    assert choice.describe() == "reranked by backward 0.5"


def test_invalid_arguments_raise_value_error(translator):
    with pytest.raises(ValueError, match="greedy must be False"):
        BestOf(translator, Choice()).translate(TEXTS, greedy=True)
    with pytest.raises(ValueError, match="texts must be a list of strings, got the string 'a'"):
        BestOf(translator, Choice()).translate("a")
    with pytest.raises(ValueError, match="utility must be one of .* got 'ter'"):
        Choice("ter")


def test_command_utilities_equal_implemented_ones():
    assert searching.UTILITIES == tuple(UTILITIES)
