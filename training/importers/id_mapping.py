"""Maps our ids to the ids of another system."""

from typing import NamedTuple

import numpy as np

# The logit of a forbidden id: its softmax is 0, and every number format can hold it.
NEVER = -1e4


class Numbering(NamedTuple):
    """Maps our ids of one side to the other system's ids.

    `old` has the other id for each id of ours, or None. `unknown` are our ids of pieces that the
    other system's table lacks: its unknown word.
    """

    old: list
    unknown: list

    @property
    def old_size(self):
        """The number of ids of the other system. Each of them is also one of ours."""
        return max(old for old in self.old if old is not None) + 1

    def rows(self, array):
        """Reorders the rows of an array from the other ids to ours; rows without an old id are
        zeros."""
        found = np.asarray(array)[[0 if old is None else old for old in self.old]]
        found[[old is None for old in self.old]] = 0
        return found


def known_pieces(pieces, vocabulary, path, model):
    """A note for the user: how many pieces of a SentencePiece model a vocabulary contains.

    If it has none of them, each word would be unknown: a ValueError.
    """
    known = len(set(pieces) & set(vocabulary))
    if not known:
        raise ValueError(
            f"{path} must have pieces of {model}, got none of its {len(pieces):,}, but "
            f"{', '.join(map(repr, [*vocabulary][4:7]))}"
        )
    return f"{path} has {known:,} of the {len(pieces):,} pieces of {model}"
