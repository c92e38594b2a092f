"""The corpus of names: the answer follows from the dialogue, and no name is in two splits."""

import itertools
import os
import re
import subprocess
import sys

import pytest
from paths import ROOT

from training import train
from training.command_line.options import read_recipe
from training.corpora.embedded import SPLITS
from training.names import DIALOGUES, NamesPair, pairs, split_of
from training.recipes.names import COUNTS, RECIPE

NAME = r"[A-Z][a-z]+"


@pytest.fixture(scope="module")
def corpus():
    """All pairs of the recipe, by split."""
    return {split: list(pairs(split, COUNTS[split])) for split in SPLITS}


def read(source):
    """(the number of the dialogue, {"a": name, ...}) of a source, by other code."""
    found = []
    for number, (said, *_) in enumerate(DIALOGUES):
        regex = re.escape(said).replace(r"\{a\}", f"(?P<a>{NAME})")
        if match := re.fullmatch(regex.replace(r"\{b\}", f"(?P<b>{NAME})"), source):
            found.append((number, match.groupdict()))
    [one] = found  # it says only one thing
    return one


def names_of(split):
    return [name for pair in split for name in read(pair.source)[1].values()]


def test_no_name_is_in_two_splits_or_comes_twice(corpus):
    found = {split: names_of(corpus[split]) for split in SPLITS}
    for split, own in found.items():
        assert len(set(own)) == len(own) > COUNTS[split]
        assert {split_of(name) for name in own} == {split}
    for one, other in itertools.combinations(SPLITS, 2):
        assert not set(found[one]) & set(found[other])


def test_every_letter_of_val_and_test_can_be_learned_in_train(corpus):
    """Only the names are unseen; their letters are not."""
    seen = set("".join(names_of(corpus["train"])).lower())
    for split in ("val", "test"):
        assert set("".join(names_of(corpus[split])).lower()) <= seen


def test_answers_are_filled_from_the_dialogue_template(corpus):
    for pair in corpus["test"]:
        number, known = read(pair.source)
        _, answer, kind = DIALOGUES[number]
        for who in re.findall(r"\{(.)\}", answer):
            answer = answer.replace(f"{{{who}}}", known[who])
        assert (pair.target, pair.kind) == (answer, kind)


def test_fewer_pairs_are_a_prefix_of_more_and_seeds_differ(corpus):
    assert list(pairs("val", 37)) == corpus["val"][:37]
    assert list(pairs("val", 0)) == []
    assert list(pairs("val", 20, seed=1)) != corpus["val"][:20]
    for seed in range(3):
        assert {split_of(name) for name in names_of(pairs("test", 50, seed))} == {"test"}


def test_the_command_prints_the_same_in_every_process():
    done = subprocess.run(
        [sys.executable, "-m", "training.names", "--split", "val", "--count", "31", "--seed", "3"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "5"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0
    lines = [NamesPair(*line.split("\t")) for line in done.stdout.splitlines()]
    assert lines == list(pairs("val", 31, seed=3))


def test_the_recipe_copies_unless_it_is_told_not_to():
    for words, copy in ((["names"], True), (["names", "--no-copy"], False)):
        recipe = read_recipe(train.parser().parse_args(words))
        assert recipe.model_changes == {**RECIPE.model_changes, "copy": copy}
