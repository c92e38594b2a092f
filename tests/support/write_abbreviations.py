"""Writes the table of `tfformer/text/abbreviations.py` to standard output:

    pip install sacremoses==0.2.0
    python tests/support/write_abbreviations.py

Months and weekdays are those that the Unicode CLDR abbreviates with a full stop in any of its
languages (Unicode License v3; by Babel 2.18.0). Prefixes that end no sentence are those of
sacremoses, which gives them under the MIT licence: but for Greek, of which there are 1,000, and for
Estonian and Finnish, whose files say that they were compiled from omorfi, which is under the GPL.
ORDINARY, words that end sentences, are left out of these. OWN are a few that neither has.
"""

import textwrap
import unicodedata

from babel import Locale, localedata

LEFT_OUT = ("el", "et", "fi")
OWN = (
    "abb abs anm aufl bsp chap ex fig figs gen kap lfd max min par pos ref res resp rev sec st "
    "seç tab taf tbl tel vol vols ziff гл илл им кв пр рис см ст стр табл тыс ул "
)

ORDINARY = (
    "air all am arch bud cast chi con corr da das dc de des dial don dot dram du ed em end "
    "engos er es est et event ex fan fans farm fat fax fem film fin fix form from gas gen her "
    "herd hot hon horn hot hut il im in ind int iron is ist it jest just kam kan kin kit la las "
    "lat led les let lib lid lit log lok los lot lug ma mad mal malt man mat max me med men "
    "mest met metal mi mil min mit mod mon mono mu ned net nom not now ob odd od off on or ou "
    "our out over pan par part pas pat per pet plan pod poet pol pop por port post pot pow pred "
    "prep pres prey pro rag ran red ref rep res resp rest ret rev rid rod sa sad san se sea seg "
    "sell sens set sex si sign sing sit sl so sob sol son sous sport spot st star stat stud sub "
    "subst sup sur tal tan te teatr tech tel ter test text till tint tom tor tout trans tu tun "
    "ul un up us usted va var vas ve ven verb vet vi via void vol vos wo za zu zug "
).split()


def is_word(text):
    """At least two letters of Latin, Cyrillic or Greek, with their marks."""
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
    prefixes = {word.lower() for word in of_sacremoses()} - set(ORDINARY)
    words = {word.lower() for word in of_cldr()} | prefixes | set(OWN.split())
    words = sorted(filter(is_word, words))
    print(textwrap.fill(" ".join(words), 99, break_on_hyphens=False))
