"""The embedded corpus `facts`: texts about people, and questions whose answer is in the text.

    Where does Jorvik live?    Velda likes figs. Jorvik lives in Tarn.    ->  Tarn

The texts say where somebody lives, what they do and what they like. Each answer is a word of its
text. Names and places are made of syllables. Those of validation and test are in no training text,
so a model must find the answer and cannot know it. The texts are computed from a seed;
nothing is stored or downloaded.
"""

import itertools
import random
import sys
from collections.abc import Iterator
from typing import NamedTuple

from .corpora import embedded
from .corpora.embedded import require, split_of

# Questions of a split at most: of two and three of 20 syllables there are 8,400 names.
MAXIMUM = 1_000_000
SYLLABLES = ("jor", "vik", "vel", "da", "tar", "no", "mi", "sel", "kor", "ba", "lin", "ros", "é",
             "gu", "shan", "to", "wen", "äl", "pre", "qui")  # fmt: skip
WORK = "baker smith pilot nurse farmer singer lawyer miner".split()
FOOD = "figs bread soup apples rice olives cheese honey".split()
# How a fact is said, in several ways, and how it is asked for.
FACTS = {
    "place": (("{name} lives in {value}.", "{value} is where {name} lives."),
              "Where does {name} live?"),
    "work": (("{name} is a {value}.", "{name} works as a {value}."), "What does {name} do?"),
    "food": (("{name} likes {value}.", "To {name} {value} taste best."), "What does {name} like?"),
}  # fmt: skip


class Question(NamedTuple):
    """A question, the text that has its answer, and the answer."""

    question: str
    text: str
    answer: str


def pairs(split: str, count: int, seed: int = 0) -> Iterator[Question]:
    """Yields `count` questions of a split, at most `MAXIMUM`, the same ones for the same seed.

    No split has a name or a place of another. A wrong argument is a ValueError.
    """
    require(split, count, MAXIMUM, "more would be of hardly any new names", seed)
    chosen = random.Random(f"{split} {seed}")
    return itertools.islice(_pairs(split, chosen), count)


def _pairs(split: str, chosen: random.Random) -> Iterator[Question]:
    while True:
        people = [_name(split, chosen) for _ in range(chosen.randint(2, 4))]
        facts = []
        for person in dict.fromkeys(people):
            for kind in chosen.sample(sorted(FACTS), chosen.randint(1, 2)):
                facts.append((person, kind, _value(kind, split, chosen)))
        chosen.shuffle(facts)
        text = " ".join(
            chosen.choice(FACTS[kind][0]).format(name=name, value=value)
            for name, kind, value in facts
        )
        name, kind, value = chosen.choice(facts)
        yield Question(FACTS[kind][1].format(name=name), text, value)


def _value(kind: str, split: str, chosen: random.Random) -> str:
    if kind == "place":
        return _name(split, chosen)
    return chosen.choice(WORK if kind == "work" else FOOD)


def _name(split: str, chosen: random.Random) -> str:
    while True:
        name = "".join(chosen.choices(SYLLABLES, k=chosen.randint(2, 3))).capitalize()
        if split_of(name) == split:
            return name


def main(arguments: list[str] | None = None) -> int:
    """Prints question, text and answer; see `training.corpora.embedded.main`."""
    description = "Print questions, one a line: question, text, answer"
    return embedded.main("training.facts", description, pairs, arguments)


if __name__ == "__main__":
    sys.exit(main())
