"""Dates as people write them in 16 languages, to ISO 8601.

    tfformer train dates --run runs/dates
    tfformer evaluate runs/dates --recipe dates

On 2 cores of an AMD EPYC (2026-11-26), 53 seconds: exact match 99.8 % on 1,000 unseen dates, at
least 98.4 % in each language.
"""

from .. import dates
from ..data.reader import Pair
from ..recipe import Recipe

COUNTS = {"train": 24_000, "val": 800, "test": 1_000}


def pairs(split, data):
    for pair in dates.pairs(split, COUNTS[split]):
        yield Pair(pair.source, pair.target, pair.language)


RECIPE = Recipe(
    pairs=pairs,
    preset="tiny",
    # Reading a date is easy: a quarter of the preset's work per token is enough.
    model_changes={"num_encoder_layers": 2, "num_decoder_layers": 2, "d_model": 64, "dropout": 0.1},
    # 256 bytes, the characters of 16 languages, and the names of months.
    vocabulary_size=500,
    # A year becomes four digits instead of one of a hundred pieces.
    split_digits=True,
    # The longest date has 38 characters.
    max_tokens=64,
    # Small batches make more steps, so that 3 epochs are enough.
    batch_tokens=1024,
    # 5 epochs with Adam give a lower score in more time (docs/measured/dates.md).
    optimizer="muon",
    weight_decay=0.5,
    epochs=3,
    # The learning rate rises in the first quarter, to 0.0144, twice the paper's formula. It falls
    # to zero in the last half.
    warmup_steps=300,
    learning_rate_scale=2.0,
    cooldown=0.5,
    # An average over three epochs would include worse models.
    average=1,
)
