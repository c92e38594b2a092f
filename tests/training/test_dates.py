"""The corpus of dates: each pair is true, clear, and in one split only."""

import datetime
import os
import random
import subprocess
import sys

import pytest
from paths import ROOT

from training.dates import (
    FIRST_YEAR,
    LANGUAGES,
    LAST_YEAR,
    SPLITS,
    DatePair,
    days,
    pairs,
    patterns,
    readings,
    split_of,
    write,
)

DAY = datetime.timedelta(days=1)
SECOND_OF_JANUARY, FIRST_OF_FEBRUARY = datetime.date(2003, 1, 2), datetime.date(2003, 2, 1)


@pytest.fixture(scope="module")
def sample() -> list[DatePair]:
    return [pair for split in SPLITS for pair in pairs(split, 3000, seed=7)]


# --- the patterns ---


def test_patterns_are_those_of_cldr():
    assert patterns("en")[:3] == ("EEEE, MMMM d, y", "MMMM d, y", "MMM d, y")
    assert "M/d/y" in patterns("en")
    assert "y-MM-dd" in patterns("sv")
    assert not any("yy" in pattern or "G" in pattern for name in LANGUAGES
                   for pattern in patterns(name))  # fmt: skip


# --- writing and reading ---


@pytest.mark.parametrize(
    ("language", "pattern", "text"),
    [
        ("de", "EEEE, d. MMMM y", "Freitag, 4. Juli 2031"),
        ("es", "d 'de' MMMM 'de' y", "4 de julio de 2031"),
        ("ja", "y年M月d日EEEE", "2031年7月4日金曜日"),
        ("ru", "d MMMM y\u202f'г'.", "4 июля 2031 г."),
        ("fi", "cccc d. MMMM y", "perjantai 4. heinäkuuta 2031"),
    ],
)
def test_known_texts_are_written_and_read(language, pattern, text):
    day = datetime.date(2031, 7, 4)
    assert pattern in patterns(language)
    assert write(day, pattern, language) == text
    assert readings(text) == {day}


@pytest.mark.parametrize("language", LANGUAGES)
def test_written_dates_can_be_read(language):
    chance = random.Random(language)
    for pattern in patterns(language):
        for _ in range(25):
            day = datetime.date.fromordinal(chance.randrange(365_000, 1_095_000))  # 1000 to 2998
            assert day in readings(write(day, pattern, language))


def test_ambiguous_date_has_two_readings():
    assert write(SECOND_OF_JANUARY, "M/d/y", "en") == "1/2/2003"
    assert write(FIRST_OF_FEBRUARY, "d/M/y", "es") == "1/2/2003"
    assert write(FIRST_OF_FEBRUARY, "dd/MM/y", "fr") == "01/02/2003"
    assert readings("1/2/2003") == {SECOND_OF_JANUARY, FIRST_OF_FEBRUARY}
    assert readings("01/02/2003") == {SECOND_OF_JANUARY, FIRST_OF_FEBRUARY}


def test_the_weekday_must_fit():
    assert readings("Thu, 1/2/2003") == {SECOND_OF_JANUARY}
    assert readings("Fri, 1/2/2003") == set()


@pytest.mark.parametrize(
    "text",
    ["", "2003", "1/2/03", "30/2/2003", "0/1/2003", "July 4, 2031 ", "on July 4, 2031",
     "july 4, 2031", "2003.13.32", "4 de julio of 2031", "July 4, 0000"],
)  # fmt: skip
def test_invalid_date_has_no_reading(text):
    assert readings(text) == set()


def test_unicode_compatible_texts_have_the_same_reading():
    day = datetime.date(2031, 7, 4)
    assert readings("２０３１年７月４日") == {day}
    assert readings("4\u00a0июля\u00a02031\u202fг.") == {day}
    assert readings("4. heina\u0308kuuta 2031") == {day}


# --- the splits ---


def test_every_day_is_in_exactly_one_split():
    all_days = [day for split in SPLITS for day in days(split)]
    first, last = datetime.date(FIRST_YEAR, 1, 1), datetime.date(LAST_YEAR, 12, 31)
    assert sorted(all_days) == [first + DAY * number for number in range((last - first).days + 1)]
    assert all(split_of(day) == split for split in SPLITS for day in days(split))


# --- the pairs ---


def test_each_source_is_read_only_as_its_target_date(sample):
    for source, target, _ in sample:
        assert readings(source) == {datetime.date.fromisoformat(target)}


def test_pairs_stay_in_their_split_whatever_the_seed():
    for split in SPLITS:
        for seed in range(3):
            for pair in pairs(split, 200, seed):
                assert split_of(datetime.date.fromisoformat(pair.target)) == split


def test_no_pair_comes_twice(sample):
    assert len({pair.source for pair in sample}) == len(sample)


def test_fewer_pairs_are_a_prefix_of_more():
    for split in SPLITS:
        assert list(pairs(split, 37)) == list(pairs(split, 101))[:37]
        assert list(pairs(split, 0)) == []


def test_pairs_are_the_same_in_every_process():
    done = subprocess.run(
        [sys.executable, "-m", "training.dates", "--split=val", "--count=64", "--seed=3"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0
    lines = [DatePair(*line.split("\t")) for line in done.stdout.splitlines()]
    assert lines == list(pairs("val", 64, seed=3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dev", 1), "split must be one of train, val, test, got 'dev'"),
        (("test", -1), "count must be an integer from 0 to .*, got -1"),
        (("test", 2.0), "count must be an integer .*, got 2.0"),
        (("test", True), "count must be an integer .*, got True"),
        (("test", 10**9), "count must be .*days, each written once.*, got 1000000000"),
        (("test", 1, "0"), "seed must be an integer, got '0'"),
    ],
)
def test_bad_arguments_are_refused_before_the_first_pair(arguments, message):
    with pytest.raises(ValueError, match=message):
        pairs(*arguments)
