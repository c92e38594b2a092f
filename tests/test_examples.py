"""Each file of `examples` learns its task and is scored on texts that it has not seen."""

import importlib

import pytest
from paths import ROOT
from tiers import slow_or_nightly

import tfformer
from examples import training_loop

SHARES = {"classifier": 0.97, "language_model": 0.93, "two_inputs": 0.97, "training_loop": 0.95}


def test_every_example_is_tested_and_named_in_the_guide():
    files = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"}
    assert files == set(SHARES)
    page = (ROOT / "docs/guide/examples.md").read_text()
    for name in files:
        assert f"python -m examples.{name}" in importlib.import_module(f"examples.{name}").__doc__
        assert f"`examples/{name}.py`" in page


@pytest.mark.parametrize(
    "name", slow_or_nightly(["classifier", "language_model", "two_inputs"], ["classifier"])
)
def test_example_learns(name):
    assert importlib.import_module(f"examples.{name}").main() >= SHARES[name]


@pytest.mark.slow
def test_model_of_a_custom_training_loop_translates_from_a_directory(tmp_path):
    assert training_loop.main(tmp_path / "run") >= SHARES["training_loop"]
    translator = tfformer.load_translator(tmp_path / "run")
    numbers = [7, 40, 913, 7206, 9999]
    found = translator.translate([training_loop.in_words(number) for number in numbers])
    assert sum(a == str(b) for a, b in zip(found, numbers, strict=True)) >= 4
