"""Ids of ours and the ids that they are elsewhere."""

from typing import NamedTuple

import numpy as np


class Numbering(NamedTuple):
    """Which id of the other system each id of ours is, on one side.

    old: a list; None where there is none.
    unknown: ids of ours that are the unknown word there: pieces that its table lacks.
    """

    old: list
    unknown: list

    @property
    def old_size(self):
        """How many ids the other system has, each of which is one of ours."""
        return max(old for old in self.old if old is not None) + 1

    def rows(self, array):
        """Rows by our ids of an array by the other's; zeros, where there is no such id."""
        found = np.asarray(array)[[0 if old is None else old for old in self.old]]
        found[[old is None for old in self.old]] = 0
        return found


def known_pieces(pieces, vocabulary, path, model):
    """A sentence for the user: how many pieces of a SentencePiece model a vocabulary has.

    Args:
        pieces: the pieces of the model that stand for text.
        vocabulary: the names in the vocabulary file.
        path, model: the file of the vocabulary, and of the model.

    Raises:
        ValueError: the vocabulary has none of the pieces, so each word would be unknown.
    """
    known = len(set(pieces) & set(vocabulary))
    if not known:
        raise ValueError(
            f"{path} must have pieces of {model}, got none of its {len(pieces):,}, but "
            f"{', '.join(map(repr, [*vocabulary][4:7]))}"
        )
    return f"{path} has {known:,} of the {len(pieces):,} pieces of {model}"
