"""Pieces of text as a reader wants them in a picture: characters in place of bytes, and Arabic."""

import re

import numpy as np

BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def characters(pieces):
    """The pieces as labels: the bytes of a character, which are a piece each, are one.

    Args:
        pieces: names of pieces, as `Side.names` gives them.

    Returns:
        A list of (label, number of pieces). Bytes that make no printable character stay as they
        are.
    """
    found, place = [], 0
    while place < len(pieces):
        label, size = pieces[place], 1
        for more in range(1, 5):
            matches = [BYTE.fullmatch(piece) for piece in pieces[place : place + more]]
            if not all(matches):
                break
            try:
                text = bytes(int(match[1], 16) for match in matches).decode()
            except UnicodeDecodeError:
                continue
            if text.isprintable():
                label, size = text, len(matches)
            break
        found.append((label, size))
        place += size
    return found


def by_character(attention, source, target):
    """Attention between labels in place of pieces.

    What goes to several source pieces is added up, and several target pieces have their mean: each
    row still sums to 1.

    Args:
        attention: [T, S].
        source, target: their `characters`.

    Returns:
        [labels of the target, labels of the source].
    """
    for axis, labels in enumerate((target, source)):
        sizes = np.array([size for _, size in labels])
        attention = np.add.reduceat(attention, np.cumsum(sizes) - sizes, axis=axis)
        if axis == 0:
            attention = attention / sizes[:, None]
    return attention
