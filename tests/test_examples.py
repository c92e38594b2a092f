"""Every file of `examples` does what it says: it learns its task, on texts that it has not seen."""

import importlib
import random

import pytest
from paths import ROOT

import tfformer
from examples import classifier, language_model, training_loop, two_inputs

SHARES = {"classifier": 0.97, "language_model": 0.93, "two_inputs": 0.97, "training_loop": 0.95}


def test_all_are_tried_and_named_in_the_guide():
    files = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"}
    assert files == set(SHARES)
    page = (ROOT / "docs/guide/examples.md").read_text()
    for name in files:
        assert f"python -m examples.{name}" in importlib.import_module(f"examples.{name}").__doc__
        assert f"`examples/{name}.py`" in page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classifier", "language_model", "two_inputs"])
def test_it_learns(name):
    assert importlib.import_module(f"examples.{name}").main() >= SHARES[name]


@pytest.mark.slow
def test_what_a_loop_of_ones_own_has_trained_is_served_from_a_directory(tmp_path):
    assert training_loop.main(tmp_path / "run") >= SHARES["training_loop"]
    translator = tfformer.load_translator(tmp_path / "run")
    numbers = [7, 40, 913, 7206, 9999]
    found = translator.translate([training_loop.in_words(number) for number in numbers])
    assert sum(a == str(b) for a, b in zip(found, numbers, strict=True)) >= 4


@pytest.mark.parametrize(
    "number, words",
    [
        (0, "zero"),
        (40, "forty"),
        (99, "ninety-nine"),
        (100, "one hundred"),
        (913, "nine hundred and thirteen"),
        (7206, "seven thousand two hundred and six"),
        (8005, "eight thousand and five"),
    ],
)
def test_numbers_in_words(number, words):
    assert training_loop.in_words(number) == words


def test_the_texts_are_what_they_say():
    texts, labels = classifier.make_texts(97, seed=5)
    for text, label in zip(texts, labels, strict=True):
        counts = [text.split().count(name) for name in classifier.NAMES]
        assert sorted(counts)[-2] < max(counts) == counts[label]
    texts, questions, places = two_inputs.make_questions(97, seed=5)
    for text, question, place in zip(texts, questions, places, strict=True):
        assert question == f"Where is {text.split(', ')[place]}?"
    draw = random.Random(5)
    assert all(language_model.agrees(language_model.make_sentence(draw)) for _ in range(97))
    for wrong in ("the cat near the dogs sleep .", "the cats sleeps .", "the dog runs", "sleeps ."):
        assert not language_model.agrees(wrong)
