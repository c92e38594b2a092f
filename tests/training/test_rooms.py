"""The corpus of rooms: the label is the room of the key, found by reading the whole story."""

import itertools
import re

import pytest

from training import rooms
from training.corpora.embedded import SPLITS
from training.recipes.rooms import COUNTS, RECIPE

KEY = re.compile("took the key to the ([a-z]+)|to the ([a-z]+) with the key|"
                 "key was carried to the ([a-z]+)")  # fmt: skip


@pytest.fixture(scope="module")
def corpus():
    return {split: [*rooms.pairs(split, 300)] for split in SPLITS}


def carried(story):
    """The positions in the story, from 0 to 1, at which the key is carried, and the rooms."""
    found = [*KEY.finditer(story.text)]
    return [one.start() / len(story.text) for one in found], [one[one.lastindex] for one in found]


def test_label_is_the_last_room_of_the_key(corpus):
    for story in corpus["train"]:
        _, found = carried(story)
        assert 1 <= len(found) <= 4 and len(set(found)) == len(found)
        assert len(found) == story.text.count("key") and story.room == found[-1]
        assert 32 <= story.text.count(".") <= 48


def test_last_move_of_the_key_is_anywhere_in_the_story(corpus):
    stories = [carried(story) for story in corpus["train"]]
    ends = [places[-1] for places, _ in stories]
    # In each fifth of the story the key is put down for the last time, mostly not in the first
    # room.
    for fifth in range(5):
        assert sum(fifth / 5 <= end < (fifth + 1) / 5 for end in ends) > 300 / 20
    assert sum(len(found) > 1 for _, found in stories) > 300 / 2
    # No room is more than twice as likely as by chance.
    counts = [sum(story.room == room for story in corpus["train"]) for room in rooms.ROOMS]
    assert 0 < min(counts) and max(counts) < 2 * 300 / len(rooms.ROOMS)


def test_no_story_is_in_two_splits_and_seeds_differ(corpus):
    texts = {split: {story.text for story in stories} for split, stories in corpus.items()}
    for split in SPLITS:
        assert len(texts[split]) == 300
        again = [*rooms.pairs(split, 300)]
        assert again == corpus[split] != [*rooms.pairs(split, 300, seed=1)]
        others = {story.text for story in rooms.pairs(split, 300, seed=2)}
        for other in set(SPLITS) - {split}:
            assert not texts[other] & (texts[split] | others)


def test_the_command_prints_text_and_room(capsys):
    assert rooms.main(["--split", "val", "--count", "3", "--seed", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [tuple(line.split("\t")) for line in lines] == [*rooms.pairs("val", 3, 5)]


def test_the_recipe_has_the_stories_of_each_split():
    for split in ("val", "test"):
        pairs = itertools.islice(RECIPE.pairs(split, None), 50)
        expected = itertools.islice(rooms.pairs(split, COUNTS[split]), 50)
        assert [(pair.source, pair.target) for pair in pairs] == [*expected]
