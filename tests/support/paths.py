"""Where things are, for tests in folders of any depth."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
TESTS = SUPPORT.parent
DATA = TESTS / "data"
ROOT = TESTS.parent
