"""`short.py` without the long sentences in training, to test positions unseen in training."""

import dataclasses

from benchmarks.learning.methods import short

# Words of a source in training at most; a fifth of the corpus is longer.
MAXIMUM = 15


def pairs(split, data, source_language, language, report=None):
    for pair in short.pairs(split, data, source_language, language, report):
        words = len(pair.source.split())
        if split != "train":
            group = "as in training" if words <= MAXIMUM else "longer"
            yield pair._replace(group=group)
        elif words <= MAXIMUM:
            yield pair


RECIPE = dataclasses.replace(short.RECIPE, pairs=pairs)
