"""Writes the table of `tfformer/text/abbreviations.py` to standard output:

    pip install sacremoses==0.2.0
    python tests/support/write_abbreviations.py

Months and weekdays are those that the Unicode CLDR abbreviates with a full stop in any of its
languages (Unicode License v3; by Babel 2.18.0). Prefixes that end no sentence are those of
sacremoses, which gives them under the MIT licence: but for Greek, of which there are 1,000, and for
Estonian and Finnish, whose files say that they were compiled from omorfi, which is under the GPL.
OWN are a few that neither has.
"""

import textwrap
import unicodedata

from babel import Locale, localedata

LEFT_OUT = ("el", "et", "fi")
OWN = "abb abs anm aufl bsp chap ex fig figs kap lfd par pos ref sec seç tab taf tbl vols ziff " + (
    "гл илл им кв пр рис см ст стр табл тыс ул"
)


def is_word(text):
    """Two letters or more of Latin, Cyrillic or Greek, and their marks."""
    letters = [letter for letter in text if not unicodedata.category(letter).startswith("M")]
    scripts = ("LATIN", "CYRILLIC", "GREEK")
    return len(letters) > 1 and all(
        letter.isalpha() and unicodedata.name(letter).startswith(scripts) for letter in letters
    )


def of_cldr():
    for code in localedata.locale_identifiers():
        if "_" not in code:
            locale = Locale.parse(code)
            for table in (locale.months, locale.days):
                for context in table.values():
                    for name in context.get("abbreviated", {}).values():
                        if name.strip().endswith("."):
                            yield name.strip().rstrip(".")


def of_sacremoses():
    from sacremoses._data_nonbreaking_prefixes import NONBREAKING_PREFIXES

    for name, lines in NONBREAKING_PREFIXES.items():
        if name.rpartition(".")[2] not in LEFT_OUT:
            for line in lines.splitlines():
                if not line.startswith("#"):
                    yield line.replace("#NUMERIC_ONLY#", "").strip()


if __name__ == "__main__":
    words = {*of_cldr(), *of_sacremoses(), *OWN.split()}
    words = sorted({word.lower() for word in words if is_word(word)})
    print(textwrap.fill(" ".join(words), 99, break_on_hyphens=False))
