"""An export that is proved by few texts, for tests of what is exported rather than of the proof."""

from export.artifacts import deployment, examples


def prove_by_few(patch):
    """Inside a `MonkeyPatch`, an export compares two texts of each signature, for a plain search in
    Python takes its time, and measures how long one takes alone."""
    patch.setattr(examples, "SAMPLES", 2)
    patch.setattr(deployment, "LATENCY_BATCHES", (1,))
