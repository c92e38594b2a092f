"""The embedded corpus `rooms`: long stories of a house, and the room where the key is at the end.

    ... Mia took the key to the kitchen. ... Tom went to the attic with the key. ...  ->  attic

The key is carried several times, anywhere in the story, and only the last time counts. So neither
the beginning nor the end of the story is enough, and a model that knows the rooms but not their
order can only guess. Other things are carried with the same words, so the model must find the
sentences about the key. The task is that of Weston et al. 2015 ("Towards AI-Complete Question
Answering", task 2), made long. The stories are computed from a seed; nothing is stored or
downloaded.
"""

import itertools
import random
import sys
from collections.abc import Iterator
from typing import NamedTuple

from .corpora import embedded
from .corpora.embedded import require, split_of

# Stories of a split at most; each is one of a number without end.
MAXIMUM = 1_000_000
# Sentences of a story, and how often the key is carried in it.
SENTENCES, CARRIED = (32, 48), (1, 4)
ROOMS = "kitchen cellar attic garden bathroom bedroom hall garage".split()
PEOPLE = "Mia Tom Ada Ben Lea Max Zoe Jon".split()
THINGS = "lamp book chair vase clock ladder basket blanket".split()
CARRYING = (
    "{who} took the {thing} to the {room}.",
    "{who} went to the {room} with the {thing}.",
    "The {thing} was carried to the {room} by {who}.",
)
ELSE = (
    "{who} walked to the {room}.",
    "{who} was in the {room} for a while.",
    "{who} and {other} had a cup of tea.",
    "{who} asked {other} for help.",
    "{who} sang an old song.",
    "It rained all the morning.",
    "The telephone rang, but nobody answered.",
    "A bird sat at the window of the {room}.",
)


class Story(NamedTuple):
    """A story, and the room that the key is in at its end."""

    text: str
    room: str


def pairs(split: str, count: int, seed: int = 0) -> Iterator[Story]:
    """Yields `count` stories of a split, at most `MAXIMUM`, the same ones for the same seed.

    No split has a story of another. A wrong argument is a ValueError.
    """
    require(split, count, MAXIMUM, "a corpus of more is of no use", seed)
    chosen = random.Random(f"{split} {seed}")
    stories = (_story(chosen) for _ in itertools.count())
    return itertools.islice((one for one in stories if split_of(one.text) == split), count)


def _story(chosen: random.Random) -> Story:
    rooms = chosen.sample(ROOMS, chosen.randint(*CARRIED))
    length = chosen.randint(*SENTENCES)
    carried = dict(zip(sorted(chosen.sample(range(length), len(rooms))), rooms, strict=True))
    text = " ".join(_sentence(carried.get(place), chosen) for place in range(length))
    return Story(text, rooms[-1])


def _sentence(room: str | None, chosen: random.Random) -> str:
    """The key is carried to `room`; where that is None, anything else is said."""
    if room is not None:
        form, thing = chosen.choice(CARRYING), "key"
    else:
        # As many of other things as of the rest.
        form, thing = chosen.choice(chosen.choice((CARRYING, ELSE))), chosen.choice(THINGS)
        room = chosen.choice(ROOMS)
    who, other = chosen.sample(PEOPLE, 2)
    return form.format(who=who, other=other, thing=thing, room=room)


def main(arguments: list[str] | None = None) -> int:
    """Prints stories: text and room, with a tab between; see `training.corpora.embedded.main`."""
    description = "Print stories, one a line: the story and the room"
    return embedded.main("training.rooms", description, pairs, arguments)


if __name__ == "__main__":
    sys.exit(main())
