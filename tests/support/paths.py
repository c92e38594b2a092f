"""The paths of folders, for tests at any depth."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
TESTS = SUPPORT.parent
DATA = TESTS / "data"
ROOT = TESTS.parent
