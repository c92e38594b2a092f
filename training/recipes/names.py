"""Small dialogues about people with unknown names, by a model that copies."""

from training import names
from training.data.reader import Pair
from training.recipe import Recipe

COUNTS = {"train": 12_000, "val": 600, "test": 1_000}


def pairs(split, data):
    for pair in names.pairs(split, COUNTS[split]):
        yield Pair(pair.source, pair.target, pair.kind)


RECIPE = Recipe(
    pairs=pairs,
    preset="tiny",
    model_changes={
        "copy": True,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "d_model": 64,
        "dropout": 0.1,
    },
    vocabulary_size=400,
    max_tokens=48,
    batch_tokens=1024,
    epochs=8,
    warmup_steps=400,
    cooldown=0.5,
    average=3,
)
