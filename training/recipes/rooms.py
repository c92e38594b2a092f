"""Stories of a house, read in overlapping pieces: where is the key at the end?

tfformer train rooms --run runs/rooms
tfformer evaluate runs/rooms --recipe rooms
"""

from .. import rooms
from ..data.reader import Pair
from ..recipe import Recipe

COUNTS = {"train": 12_000, "val": 500, "test": 1_000}


def pairs(split, data):
    for story in rooms.pairs(split, COUNTS[split]):
        yield Pair(story.text, story.room)


RECIPE = Recipe(
    pairs=pairs,
    task="classifier",
    preset="tiny",
    model_changes={
        "num_layers": 2,
        "d_model": 64,
        "dropout": 0.1,
        "norm": "pre",
        "piece_length": 64,
        "piece_overlap": 16,
        "pieces": "transformer",
    },
    vocabulary_size=400,
    max_tokens=512,
    batch_tokens=16384,
    epochs=8,
    warmup_steps=200,
    cooldown=0.3,
    optimizer="muon",
    learning_rate_scale=0.3,
    weight_decay=0.1,
    smoothing=0.0,
)
