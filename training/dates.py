"""The embedded corpus `dates`: dates as people write them -> ISO 8601.

    Freitag, 4. Juli 2031        ->  2031-07-04
    4 de julio de 2031           ->  2031-07-04
    2031年7月4日金曜日           ->  2031-07-04

The task is small enough for a CPU, and it needs a Transformer: the order of the parts depends on
the language, and a month may be a word, an abbreviation or a number. Each answer is right or wrong,
so exact match is enough as a score. The pairs are computed from a seed; nothing is stored or
downloaded.

The patterns are from the Unicode Common Locale Data Repository (CLDR), which records how each
language writes dates. The library Babel contains a copy. A pattern such as `EEEE, d. MMMM y`
consists of date fields (repeated letters) and literal text:

    field            meaning
    d, dd            day of the month; dd has two digits
    M, MM / L, LL    number of the month; MM and LL have two digits
    MMM, MMMM        name of the month, short and full, within a date
    LLL, LLLL        the same on its own (in many languages another case of the noun)
    E, EEE, EEEE     name of the weekday, short, short and full
    ccc, cccc        the same on its own
    y, yyyy          the full year
    'de'             literal text

Sources: Unicode CLDR, https://cldr.unicode.org, and the table of date fields in UTS #35,
https://unicode.org/reports/tr35/tr35-dates.html#Date_Field_Symbol_Table.

Some texts mean two different days: 1/2/2003 is 2 January in the United States and 1 February in
Spain. `pairs` leaves them out. It keeps a text only if `readings`, which tries the patterns of all
languages, finds exactly one day.
"""

import datetime
import itertools
import random
import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from babel import Locale
from babel.dates import format_date, tokenize_pattern

from .corpora import embedded
from .corpora.embedded import SPLITS, require, require_split

# Babel locale ids. Each language writes Gregorian dates with ASCII digits. Together they cover
# Latin, Cyrillic, Japanese, Chinese and Korean script, the orders day-month-year, month-day-year
# and year-month-day, and inflected names of months.
LANGUAGES = (
    "en", "es", "fr", "de", "it", "pt", "nl", "sv", "fi", "pl", "ru", "tr", "hu", "ja", "zh", "ko",
)  # fmt: skip

FIRST_YEAR, LAST_YEAR = 1950, 2049  # a hundred years: each two last digits occur once


class DatePair(NamedTuple):
    """A date as `language` writes it (`source`) and in ISO 8601 (`target`)."""

    source: str
    target: str
    language: str


@cache
def patterns(language: str) -> tuple[str, ...]:
    """The CLDR patterns of complete dates in a language, without repetitions.

    They are the full, long and medium formats, then the skeleton patterns (CLDR's patterns for a
    set of fields), sorted by name. Each has one day, one month, one full year, perhaps a weekday,
    and no other field: no era, quarter or week, no two-digit year.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language must be one of {', '.join(LANGUAGES)}, got {language!r}")
    locale = _locale(language)
    formats = [locale.date_formats[width].pattern for width in ("full", "long", "medium")]
    skeletons = [str(pattern) for _, pattern in sorted(locale.datetime_skeletons.items())]
    return tuple(dict.fromkeys(filter(_names_a_whole_date, formats + skeletons)))


# The other letters that UTS #35 has for a month and a weekday: their stand-alone forms.
_SAME_FIELD = {"L": "M", "c": "E"}


def _names_a_whole_date(pattern: str) -> bool:
    fields = [value for kind, value in tokenize_pattern(pattern) if kind == "field"]
    letters = sorted(_SAME_FIELD.get(letter, letter) for letter, _ in fields)
    return letters in (["M", "d", "y"], ["E", "M", "d", "y"]) and ("y", 2) not in fields


@cache
def _locale(language: str) -> Locale:
    return Locale.parse(language)


def split_of(day: datetime.date) -> str:
    """The split of `day`, which does not depend on seeds and counts."""
    return embedded.split_of(day.isoformat())


def days(split: str) -> tuple[datetime.date, ...]:
    """The days of a split, from `FIRST_YEAR` to `LAST_YEAR` inclusive, in order."""
    require_split(split)
    return _calendar()[split]


@cache
def _calendar() -> dict[str, tuple[datetime.date, ...]]:
    first = datetime.date(FIRST_YEAR, 1, 1).toordinal()
    last = datetime.date(LAST_YEAR, 12, 31).toordinal()
    century = [datetime.date.fromordinal(number) for number in range(first, last + 1)]
    return {split: tuple(day for day in century if split_of(day) == split) for split in SPLITS}


def pairs(split: str, count: int, seed: int = 0) -> Iterator[DatePair]:
    """Yields `count` different pairs of a split, each with only one meaning.

    The languages take turns. Each writes every day of the split once, in its own order, with a
    random pattern. A text that is ambiguous, or that another language has written already
    (7/7/2031), is drawn again. The same `split` and `seed` give the same pairs, in every process
    and with every release of Babel that has the same patterns and names. A smaller `count` gives
    the first of them.

    Raises:
        ValueError: an argument is wrong. The call itself raises it, before the first pair.
    """
    maximum = len(days(split)) * len(LANGUAGES)
    why = (
        f"split {split!r} has {len(days(split))} days, each written once in {len(LANGUAGES)} "
        "languages"
    )
    require(split, count, maximum, why, seed)
    return itertools.islice(_all_pairs(split, seed), count)


def _all_pairs(split: str, seed: int) -> Iterator[DatePair]:
    chance = random.Random(f"dates {split} {seed}")
    orders = [chance.sample(days(split), len(days(split))) for _ in LANGUAGES]
    written = set()
    for turn in zip(*orders, strict=True):
        for language, day in zip(LANGUAGES, turn, strict=True):
            source = _draw(day, language, chance, written)
            written.add(source)
            yield DatePair(source, day.isoformat(), language)


def _draw(day: datetime.date, language: str, chance: random.Random, written: set[str]) -> str:
    for pattern in chance.sample(patterns(language), len(patterns(language))):
        source = write(day, pattern, language)
        if source not in written and readings(source) == {day}:
            return source
    raise RuntimeError(f"{language} has no text of its own for {day}")  # a test excludes this


def write(day: datetime.date, pattern: str, language: str) -> str:
    """`day` written with `pattern` in `language`, as plain text.

    CLDR uses no-break spaces (U+00A0, and the narrow U+202F), as in the Russian `2031\\u202fг.`.
    Keyboards have none, so people type a plain space; so does this corpus. The text is in Unicode's
    composed form, NFC.
    """
    text = format_date(day, pattern, _locale(language))
    return unicodedata.normalize("NFC", text.replace("\u00a0", " ").replace("\u202f", " "))


def readings(text: str) -> set[datetime.date]:
    """Every day that the whole `text` can mean, with any pattern of any language.

    A day or a month in digits may have a leading zero, whatever its pattern, because people write
    both: 1/2/2003 and 01/02/2003 each mean two days. A weekday must fit the day. Texts that are
    compatible in Unicode (NFKC: full-width digits, no-break spaces) are read alike, as by the
    tokenizer. Case matters.
    """
    text = unicodedata.normalize("NFKC", text)
    found = {reader.read(text) for reader in _readers()}
    return found - {None}


class _Reader(NamedTuple):
    """Reads dates of a pattern: a regular expression with a group for each field.

    `names` has the numbers of fields that are words: {"M": {"July": 7, ...}, "E": ...}.
    """

    regex: re.Pattern[str]
    names: dict[str, dict[str, int]]

    def read(self, text: str) -> datetime.date | None:
        match = self.regex.fullmatch(text)
        if match is None:
            return None
        number = {
            field: self.names[field][word] if field in self.names else int(word)
            for field, word in match.groupdict().items()
        }
        try:
            day = datetime.date(number["y"], number["M"], number["d"])
        except ValueError:  # there is no 31 February and no month 13
            return None
        return day if number.get("E", day.weekday()) == day.weekday() else None


@cache
def _readers() -> tuple[_Reader, ...]:
    readers = []
    for language in LANGUAGES:
        for pattern in patterns(language):
            reader = _reader(pattern, language)
            if reader not in readers:  # d/M/y and dd/MM/y read the same texts
                readers.append(reader)
    return tuple(readers)


def _reader(pattern: str, language: str) -> _Reader:
    regex, names = "", {}
    for kind, value in tokenize_pattern(pattern):
        if kind == "chars":
            regex += re.escape(unicodedata.normalize("NFKC", value))
            continue
        letter, length = value
        field = _SAME_FIELD.get(letter, letter)
        if field == "E" or (field == "M" and length > 2):
            names[field] = _names(letter * length, language)
            words = "|".join(map(re.escape, sorted(names[field], key=len, reverse=True)))
            regex += f"(?P<{field}>{words})"
        else:
            regex += f"(?P<{field}>[0-9]{'{4}' if field == 'y' else '{1,2}'})"
    return _Reader(re.compile(regex), names)


def _names(field: str, language: str) -> dict[str, int]:
    """The words that Babel writes for a month or weekday field, and the number of each."""
    if field[0] in "ML":
        numbers = {datetime.date(2001, month, 1): month for month in range(1, 13)}
    else:  # 1 January 2001 was a Monday, and Python numbers weekdays from Monday, 0
        numbers = {datetime.date(2001, 1, day): day - 1 for day in range(1, 8)}
    return {
        unicodedata.normalize("NFKC", write(day, field, language)): number
        for day, number in numbers.items()
    }


def main(arguments: list[str] | None = None) -> int:
    """Prints pairs: source, target and language; see `training.corpora.embedded.main`."""
    description = "Prints dates, one per line: source, target, language"
    return embedded.main("training.dates", description, pairs, arguments)


if __name__ == "__main__":
    sys.exit(main())
