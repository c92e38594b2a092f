"""Questions about made-up people, whose answers stand in a text.

tfformer train facts --run runs/facts
tfformer evaluate runs/facts --recipe facts

On a core of an AMD EPYC with AVX-512, other work beside (2026-11-25), 11.4 minutes: exact match
59.0 %, F1 of words 60.5 %. More epochs would learn more: that of `val` rose up to the last.
"""

from .. import facts
from ..data.reader import Pair
from ..recipe import Recipe

COUNTS = {"train": 12_000, "val": 500, "test": 1_000}


def pairs(split, data):
    for one in facts.pairs(split, COUNTS[split]):
        yield Pair(one.question, one.text, one.answer)


RECIPE = Recipe(
    pairs=pairs,
    task="span",
    preset="tiny",
    # A name is found by its letters: half of the preset's width is enough.
    model_changes={"num_layers": 3, "d_model": 64, "dropout": 0.1, "norm": "pre"},
    # Names are new: pieces of few letters, which those of training share with all others.
    vocabulary_size=400,
    # The longest text of eight facts has about 120 pieces.
    max_tokens=192,
    # Small batches: few epochs are to be enough, and they make more steps of them.
    batch_tokens=4096,
    epochs=8,
    # Half of the first epoch rises, the last third falls to zero.
    warmup_steps=200,
    cooldown=0.3,
    # In fewer steps than Adam, with a peak of 0.0026: the paper's formula gives 64 columns 0.0088.
    optimizer="muon",
    learning_rate_scale=0.3,
    weight_decay=0.1,
    smoothing=0.0,
)
