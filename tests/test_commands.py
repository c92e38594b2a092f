"""`python -m training` and `python -m export` list their commands."""

import importlib
import sys

import pytest
from paths import ROOT


@pytest.mark.parametrize("package", ["training", "export"])
def test_each_command_is_listed_with_what_it_does(package, capsys, monkeypatch):
    listing = importlib.import_module(f"{package}.__main__")
    monkeypatch.setattr(sys, "argv", [package])
    assert listing.main() == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[2:]]
    found = [path for path in (ROOT / package).glob("*.py") if not path.name.startswith("_")]
    found = [path.stem for path in found if '__name__ == "__main__"' in path.read_text()]
    assert [name for name, _ in rows] == [f"{package}.{name}" for name in sorted(found)]
    assert all(len(text.split()) > 1 and "`python" not in text for _, text in rows)
    monkeypatch.setattr(sys, "argv", [package, "no-such-command"])
    assert listing.main() == 2
