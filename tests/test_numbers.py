"""For a number out of range, each option of each command gives one line and exit code 2."""

import argparse
import importlib

import pytest
from paths import ROOT

from tfformer.terminal import listing
from tfformer.terminal.command import Number, Parser

BIG, LONG = "1" + "0" * 30, "9" * 5000
# Values that no option of a kind accepts. One option of recipes may be infinite.
WRONG = {"INT": [BIG, f"-{BIG}", LONG, f"-{LONG}", "inf", "nan", "1.5", "x", ""],
         "FLOAT": ["nan", "-inf", "-1e400", f"-{BIG}", "x", ""]}  # fmt: skip
INFINITE = ["inf", "1e400", LONG]
MAY_BE_INFINITE = {"--max-length-ratio"}
TRAIN = "training.train"


class Seen(Exception):
    """Carries the parser out of a command before the rest of the command runs."""


def commands():
    found = []
    for package in ("training", "export"):
        found += [f"{package}.{name}" for name, _ in listing.commands(ROOT / package)]
    return found


def parser_of(name, monkeypatch):
    """The parser that a command's `main` makes."""
    module = importlib.import_module(name)

    def seen(self, *_):
        raise Seen(self)

    with monkeypatch.context() as patched:
        patched.setattr(Parser, "run", seen)
        with pytest.raises(Seen) as found:
            module.main([])
    return found.value.args[0]


def numbers_of(parser):
    """(option, "INT" or "FLOAT") of all options of a command that are numbers."""
    for action in parser._actions:
        kind = getattr(action.type, "__name__", "")
        if kind in ("int", "float", "<lambda>"):  # the last one is `auto` or a number of tokens
            yield action, "FLOAT" if kind == "float" else "INT"


def words_before(name, parser, tmp_path):
    """The other arguments that a command needs; `training.train` trains nothing."""
    if name == TRAIN:
        return ["dates", "--print-config"]
    words = [str(tmp_path / a.dest) for a in parser._actions if not a.option_strings]
    for action in parser._actions:
        if action.option_strings and action.required:
            words += [action.option_strings[0], "x"]
    return words


def code_of(name, arguments):
    try:
        return importlib.import_module(name).main(arguments)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize("name", commands())
def test_number_out_of_range_gives_one_line_error(name, monkeypatch, tmp_path, capsys):
    parser = parser_of(name, monkeypatch)
    before = words_before(name, parser, tmp_path)
    for action, kind in numbers_of(parser):
        flag = action.option_strings[0]
        wrong = WRONG[kind] + (INFINITE if kind == "FLOAT" and flag not in MAY_BE_INFINITE else [])
        for value in wrong:
            assert code_of(name, [*before, f"{flag}={value}"]) == 2, (flag, value)
            [line] = capsys.readouterr().err.splitlines()
            named = {word for f in action.option_strings for word in (f, f[2:].replace("-", "_"))}
            assert any(word in line for word in named) and "must " in line, line
            said = value[:40] if name != TRAIN or kind == "INT" else ""
            assert f"got {said}" in line and len(line) < 300, line


def test_every_number_of_a_command_is_checked(monkeypatch):
    found = 0
    for name in commands():
        for action in parser_of(name, monkeypatch)._actions:
            assert action.type not in (int, float), (name, action.option_strings)
            found += isinstance(action.type, Number)
    assert found > 50


@pytest.mark.parametrize(
    ("number", "good", "bad"),
    [
        (Number(int), {"0": 0, "2147483647": 2**31 - 1},
         {"-1": "not be negative", "2147483648": "be at most 2147483647", "1e3": "be an integer",
          "-" + LONG: "not be negative", "a\x1bb": r"be an integer, got 'a\\x1bb'"}),
        (Number(int, 1, 4), {"1": 1, "4": 4}, {"0": "be at least 1", "5": "be at most 4"}),
        (Number(int, 0, 9, rule="be in [0, 9]"), {"9": 9},
         {"-1": r"be in \[0, 9\], got -1", "10": r"be in \[0, 9\], got 10"}),
        (Number(float, maximum=60, positive=True), {"60": 60.0, "0.5": 0.5, "1e-300": 1e-300},
         {"0": "be positive", "-1": "be positive", "1e400": "be at most 60, got 1e400",
          "1e-400": "be positive", "inf": "be at most 60", "nan": "be a number",
          "-inf": "be positive", LONG: r"be at most 60, got 9{40}\.\.\. \(5000 characters\)"}),
    ],
)  # fmt: skip
def test_number_type_accepts_and_refuses_values(number, good, bad):
    assert {text: number(text) for text in good} == good
    for text, rule in bad.items():
        with pytest.raises(argparse.ArgumentTypeError, match=f"^must {rule}"):
            number(text)
