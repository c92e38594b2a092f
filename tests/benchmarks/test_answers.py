"""The languages with one and with many right answers: which words are right, by hand."""

import pytest

from benchmarks.learning import answers
from benchmarks.learning.answers import Language

ONE, MANY = 1, 3
LANGUAGE = Language()


def words(*chosen):
    """Target words for these (concept, gender), each with its correct ending."""
    found = []
    for concept, gender in chosen:
        found.append(LANGUAGE.written(concept, gender, found[-1] if found else None))
    return found


def test_ending_agrees_with_the_gender_of_the_previous_word():
    assert [word[-1] for word in words((5, 2), (6, 1), (7, 0))] == ["x", "w", "y"]


@pytest.mark.parametrize(
    ("given", "synonyms", "expected"),
    [
        (words((3, 0), (4, 1)), ONE, [True, True]),
        (words((3, 0), (4, 2)), ONE, [True, False]),  # a synonym
        (words((3, 1), (4, 2)), MANY, [True, True]),
        (words((4, 1), (3, 0)), MANY, [False, False]),  # in another order
        (words((3, 1)), MANY, [True, False]),  # one is missing
        (words((3, 1), (4, 2), (5, 0)), MANY, [True, True, False]),  # an extra word
        ([words((3, 1))[0], "nothing"], MANY, [True, False]),
        ([], MANY, [False]),
    ],
)
def test_each_position_is_judged_right_or_wrong(given, synonyms, expected):
    assert LANGUAGE.right([3, 4], given, synonyms) == expected


def test_an_ending_that_does_not_agree_is_wrong():
    first, second = words((3, 1), (4, 2))
    for ending in "xw":
        assert LANGUAGE.right([3, 4], [first, second[:-1] + ending], MANY) == [True, False]


def test_both_languages_have_the_same_sources():
    one, many = ([concepts for concepts, _ in LANGUAGE.pairs("val", n)] for n in (ONE, MANY))
    assert one == many and len(one) == 300


@pytest.mark.parametrize("synonyms", [ONE, MANY])
def test_every_target_of_the_test_set_is_right(synonyms):
    pairs = list(LANGUAGE.pairs("test", synonyms))
    assert all(all(LANGUAGE.right(*pair, synonyms)) for pair in pairs)
    assert len({tuple(target) for _, target in pairs}) > 900


def test_p_value_of_the_sign_test():
    """Five of five differences in one direction: 2 / 2**5."""
    ours, theirs = [1, 2, 3, 3, 1, 0, 2], [0, 1, 2, 0, 0, 0, 2]
    assert answers._sign_test(ours, theirs) == pytest.approx(0.0625)
    assert answers._sign_test(theirs, ours) == pytest.approx(0.0625)
    assert answers._sign_test(ours, ours) == 1
