"""Which cases of a slow test run in CI."""

import pytest


def slow_or_nightly(names, slow):
    """Parameters of a test: those in `slow` are slow cases, which CI runs, the others nightly."""
    return [
        pytest.param(name, marks=pytest.mark.slow if name in slow else pytest.mark.nightly)
        for name in names
    ]
