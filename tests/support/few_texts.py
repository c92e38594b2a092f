"""Exports verified with few texts, for tests of other parts of an export."""

from export.artifacts import deployment, examples


def prove_by_few(patch):
    """In this `MonkeyPatch`, an export compares two texts of each signature, because a plain
    search in Python is slow. The export measures the latency of one text only."""
    patch.setattr(examples, "SAMPLES", 2)
    patch.setattr(deployment, "LATENCY_BATCHES", (1,))
