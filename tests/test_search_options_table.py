"""The table of search options: rules, types, and options with two names."""

import inspect
from pathlib import Path

import pytest
from paths import ROOT

import tfformer
from export import saved_model
from tfformer.config.search_options import OPTIONS, SECOND_NAMES, first_names, takes_second_names
from training import train
from training.recipe import Recipe


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_default_and_off_values_pass_the_rules_of_an_option(option):
    assert option.checked(option.default) == option.default
    assert type(option.checked(option.default)) is option.kind and option.help
    assert option.off is None or option.checked(option.off) == option.off


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("beam_width", 0, r"beam_width must be in \[1, 64\], got 0"),
        ("beam_width", 2.5, "beam_width must be an integer, got 2.5"),
        ("length_penalty", float("nan"), "length_penalty must be in .* got nan"),
        ("length_penalty", "1", "length_penalty must be in .* got '1'"),
        ("no_repeat_ngram", 9, r"no_repeat_ngram must be in \[0, 8\], got 9"),
        ("length_penalty_form", "log", "length_penalty_form must be one of .* got 'log'"),
    ],
)
def test_value_that_breaks_a_rule_is_refused(name, value, message):
    with pytest.raises(ValueError, match=message):
        OPTIONS[name].checked(value)


def test_penalties_become_floats_and_lengths_integers():
    assert type(OPTIONS["length_penalty"].checked(1)) is float
    assert type(OPTIONS["min_length"].checked(3.0)) is int


def test_second_names_are_accepted_but_not_twice():
    assert first_names({"alpha": 1.0, "min_target_length": 3}) == {
        "length_penalty": 1.0,
        "min_length": 3,
    }
    with pytest.raises(ValueError, match="length_penalty must be given once, got 0.6 and 1"):
        first_names({"length_penalty": 0.6, "alpha": 1})
    assert not set(SECOND_NAMES) & set(OPTIONS)

    @takes_second_names
    def search(batch, length_penalty=0.6):
        return batch, length_penalty

    assert search(2, alpha=1.0) == search(2, length_penalty=1.0) == (2, 1.0)
    assert "length_penalty" in inspect.signature(search).parameters


def test_public_beam_search_has_the_default_options():
    parameters = inspect.signature(tfformer.beam_search).parameters
    for name in ("beam_width", "length_penalty", "length_penalty_form"):
        assert parameters[name].default == OPTIONS[name].default


def test_the_translator_a_recipe_and_the_commands_have_the_options_of_the_table():
    parameters = inspect.signature(tfformer.Translator).parameters
    for name, option in OPTIONS.items():
        assert parameters[name].default == option.default, name
    recipe = Recipe(pairs=lambda split, data: [])
    for name in ("beam_width", "length_penalty"):
        assert getattr(recipe, name) == OPTIONS[name].default
    for parser in (saved_model.parser(), train.parser()):
        flags = {flag for action in parser._actions for flag in action.option_strings}
        assert {option.flag for option in OPTIONS.values()} <= flags


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_off_value_of_an_option_can_be_given_to_export(option):
    off = option.default if option.off is None else option.off
    command = saved_model.parser()
    arguments = command.parse_args(["run", "out", option.flag, str(off)])
    places = {"run": Path("run"), "directory": Path("out")}
    assert saved_model.given(command, arguments) == places | {option.name: off}


def test_search_page_lists_every_option():
    page = (ROOT / "docs" / "guide" / "search.md").read_text(encoding="utf-8")
    for option in OPTIONS.values():
        assert f"`{option.name}`" in page or f"`{option.flag}" in page, option.name
