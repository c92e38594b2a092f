"""Maps our ids to the ids of another system."""

import re
from typing import NamedTuple

import numpy as np

from tfformer.text.vocabularies import FILLING, SPECIAL

from .options import read_json_object

UNK, EOS = "<unk>", "</s>"  # the names of unk and eos in a table of ids
# The logit of a forbidden id: its softmax is 0, and every number format can hold it.
NEVER = -1e4


class Numbering(NamedTuple):
    """Maps our ids of one side to the other system's ids.

    `old` has the other id for each id of ours, or None. `unknown` are our ids with probability 0,
    because another id of ours has their old id. They are pieces that the other system's table
    lacks, its unknown word; or our bos, if a target begins with its eos.
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


def read_table(path, size, pad, eos):
    """Reads and checks a table of ids: {piece: id}."""
    table = read_json_object(path)
    if other := [one for one in table.values() if type(one) is not int]:
        raise ValueError(f"{path} must have an id for each piece, got {other[0]!r}")
    # A lone surrogate is no character.
    if broken := [piece for piece in table if re.search("[\ud800-\udfff]", piece)]:
        raise ValueError(f"{path} must be of characters of Unicode, got {broken[0]!r}")
    ids = sorted(table.values())
    if len(set(ids)) < len(ids) or not ids or not 0 <= ids[0] <= ids[-1] < size:
        raise ValueError(f"{path} must have each id once, from 0 to {size - 1:,}, got others")
    if table.get(UNK, pad) == pad or table.get(EOS) != eos:
        raise ValueError(
            f"{path} must have {UNK}, beside the pad, and {EOS} = {eos} as eos_token_id, got "
            f"{table.get(UNK)} and {table.get(EOS)}"
        )
    return table


def numbered(table, size, first, unknown=()):
    """The pieces of our ids from 4 on, and the `Numbering`.

    Args:
        table: the other system's {piece: id}.
        size: the number of its ids.
        first: its ids for pad, unk, bos and eos; None: it has no such id.
        unknown: more pieces, which are its unknown word.
    """
    by_id, old = {n: piece for piece, n in table.items()}, list(first)
    others = [n for n in range(size) if n not in old]
    # If an id has no piece in the table, or that of one of our special ids, no text contains it.
    names = [by_id.get(n, str(n)) for n in others]
    names = [
        name if n in by_id and name not in SPECIAL and name else f"{FILLING}{n}"
        for n, name in zip(others, names, strict=True)
    ]
    repeated = [n for n, one in enumerate(old) if one is not None and one in old[n + 1 :]]
    old += others
    more = list(range(len(old), len(old) + len(unknown)))
    return [*names, *unknown], Numbering(old + [old[1]] * len(unknown), [*repeated, *more])


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
