"""The embedded corpus `names`: small dialogues about people with unknown names.

    Hello, I'm Jorvik.             ->  Hello, Jorvik, nice to meet you.
    Is Thalen older than Brumo?    ->  No, Brumo is older than Thalen.
    Is that Ilvask or Woreni?      ->  That is Woreni.

The task is to copy: the answer does not depend on the name, so a model can only copy the name from
the question, piece by piece. Names are made of syllables from a seed, and the three splits share
none: a name of the test was never seen in training. An answer is an exact match or wrong. This is
the task of a pointer-generator (See et al. 2017; Gu et al. 2016, "Incorporating Copying Mechanism
in Sequence-to-Sequence Learning", whose first example is such a dialogue).
"""

import itertools
import random
import sys
from collections.abc import Iterator
from typing import NamedTuple

from .corpora import embedded
from .corpora.embedded import require, split_of

# What is said, the answer, and the kind of both. {a} and {b} are names; the answer uses both in the
# same or in the other order, or one of them.
DIALOGUES = (
    ("Hello, I'm {a}.", "Hello, {a}, nice to meet you.", "introduction"),
    ("My name is {a}.", "What a beautiful name, {a}.", "introduction"),
    ("Here is {a} speaking.", "How can I help you, {a}?", "introduction"),
    ("Good morning, this is {a}.", "Good morning, {a}, did you sleep well?", "greeting"),
    ("{a} sends you greetings.", "How kind of {a}, thank you.", "greeting"),
    ("Goodbye from {a}.", "See you soon, {a}.", "farewell"),
    ("{a} has to go now.", "Goodbye, {a}, and come back soon.", "farewell"),
    ("Who is {a}?", "{a} is a friend of mine.", "question"),
    ("Do you know {a}?", "Yes, I met {a} last year.", "question"),
    ("I'm {a} and this is {b}.", "Hello, {a} and {b}.", "two"),
    ("{a}, this is {b}.", "Nice to meet you, {b}, I'm {a}.", "two"),
    ("Is {a} older than {b}?", "No, {b} is older than {a}.", "two"),
    ("Is that {a} or {b}?", "That is {b}.", "two"),
    ("{a} stayed, but {b} left.", "Why did {b} leave without {a}?", "two"),
    ("{a} told {b} a story.", "What did {a} say?", "two"),
)
# A name is two or three syllables: a beginning, a vowel, and perhaps an end.
BEGINNINGS = (
    "b", "br", "d", "dr", "f", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "r", "s", "st",
    "t", "th", "tr", "v", "w", "z",
)  # fmt: skip
VOWELS = ("a", "e", "i", "o", "u", "ae", "ei", "ou", "y")
ENDS = ("", "", "", "l", "n", "r", "s", "k", "m", "sk", "rd", "x")
# Of these syllables millions of names can be made, a tenth of them for the smallest split.
MAXIMUM = 100_000


class NamesPair(NamedTuple):
    """What is said (`source`), the answer (`target`), and the `kind` of dialogue."""

    source: str
    target: str
    kind: str


def pairs(split: str, count: int, seed: int = 0) -> Iterator[NamesPair]:
    """Yields `count` pairs of a split: the dialogues take turns, each with names of its own.

    The same `split` and `seed` give the same pairs, in every process; a smaller `count`, at most
    `MAXIMUM`, gives the first of them. The splits share no name. A wrong argument is a
    ValueError of the call itself.
    """
    require(split, count, MAXIMUM, "more would be of hardly any new names", seed)
    return itertools.islice(_all_pairs(split, seed), count)


def _all_pairs(split: str, seed: int) -> Iterator[NamesPair]:
    chance = random.Random(f"names {split} {seed}")
    named = set()
    for source, target, kind in itertools.cycle(DIALOGUES):
        names = {}
        for who in ("a", "b"):
            if f"{{{who}}}" in source:
                names[who] = _new_name(split, chance, named)
                named.add(names[who])
        yield NamesPair(source.format(**names), target.format(**names), kind)


def _new_name(split: str, chance: random.Random, named: set[str]) -> str:
    while True:
        syllables = [
            chance.choice(BEGINNINGS) + chance.choice(VOWELS) + chance.choice(ENDS)
            for _ in range(chance.choice((2, 2, 3)))
        ]
        name = "".join(syllables).capitalize()
        if name not in named and split_of(name) == split:
            return name


def main(arguments: list[str] | None = None) -> int:
    """Prints pairs: source, target and kind, with tabs; see `training.corpora.embedded.main`."""
    description = (
        "Print dialogues about unknown people, one a line: what is said, the answer, the kind"
    )
    return embedded.main("training.names", description, pairs, arguments)


if __name__ == "__main__":
    sys.exit(main())
