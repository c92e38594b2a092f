"""The recipe multi30k with the first 5,000 of its training pairs, for `halves.toml`."""

import dataclasses
import itertools

from training.recipes import multi30k

PAIRS = 5000


def pairs(split, data, source_language, language, report=None):
    found = multi30k.pairs(split, data, source_language, language, report)
    return itertools.islice(found, PAIRS if split == "train" else None)


RECIPE = dataclasses.replace(
    multi30k.RECIPE,
    pairs=pairs,
    # 50 steps each.
    epochs=12,
    warmup_steps=200,
    # The recipe's peak, 0.0025.
    learning_rate_scale=0.53,
    cooldown=0.3,
    subword_sampling=0.0,
    validate_every=6,
    average=4,
)
