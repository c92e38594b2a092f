"""`short.py` with one pair of five in training: for methods that translate as they train, by which
a pair costs twenty-five times as much.

Not the first pairs: parts of the corpus differ. An epoch more of cross-entropy on the first 6,000
took 2.4 BLEU away.
"""

import dataclasses
import itertools

from benchmarks.learning.methods import short

ONE_OF = 5


def pairs(split, data, source_language, language, report=None):
    found = short.pairs(split, data, source_language, language, report)
    return itertools.islice(found, 0, None, ONE_OF) if split == "train" else found


RECIPE = dataclasses.replace(short.RECIPE, pairs=pairs)
