"""The task of notebooks 2 and 7: a row of digits, written backwards."""

import numpy as np

from tfformer.config import BOS, EOS

DIGITS = np.arange(4, 14)  # ids: 0 to 3 are padding, unknown, begin and end
VOCABULARY_SIZE = 14


def batch(lengths, seed):
    """Rows of digits of these lengths, by chance, as a model learns them.

    Returns:
        {"source_ids": [B, S], "target_ids": [B, T]} and the labels [B, T].
    """
    draw = np.random.default_rng(seed)
    size = len(lengths), max(lengths) + 1
    source_ids, target_ids, labels = (np.zeros(size, "int32") for _ in range(3))
    for row, length in enumerate(lengths):
        digits = draw.choice(DIGITS, length)
        source_ids[row, : length + 1] = [*digits, EOS]
        target_ids[row, : length + 1] = [BOS, *digits[::-1]]
        labels[row, : length + 1] = [*digits[::-1], EOS]
    return {"source_ids": source_ids, "target_ids": target_ids}, labels
