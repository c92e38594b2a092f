"""Dates as people write them in 16 languages, to ISO 8601.

    python -m training.train dates --run runs/dates
"""

from training import dates
from training.reader import Pair
from training.recipe import Recipe

COUNTS = {"train": 40_000, "val": 800, "test": 1_000}


def pairs(split, data):
    for pair in dates.pairs(split, COUNTS[split]):
        yield Pair(pair.source, pair.target, pair.language)


RECIPE = Recipe(
    pairs=pairs,
    preset="tiny",
    model_changes={"num_encoder_layers": 2, "num_decoder_layers": 2, "dropout": 0.1},
    vocabulary_size=800,
    split_digits=True,
    max_tokens=64,
    batch_tokens=2048,
    epochs=6,
    warmup_steps=400,
    learning_rate_scale=1.0,
    average=3,
)
