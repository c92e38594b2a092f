"""Labels of pieces in a picture: pieces that are bytes are joined into characters."""

import re

import numpy as np

BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def characters(pieces):
    """Labels for names of pieces: a list of (label, number of pieces).

    If the bytes of a character are one piece each, they become one label. Bytes that form no
    printable character are kept.
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
    """Attention between labels, instead of pieces [T, S]; `source` and `target` are their
    `characters`.

    The attention to several source pieces is summed; that of several target pieces is averaged. So
    each row still sums to 1.
    """
    for axis, labels in enumerate((target, source)):
        sizes = np.array([size for _, size in labels])
        attention = np.add.reduceat(attention, np.cumsum(sizes) - sizes, axis=axis)
        if axis == 0:
            attention = attention / sizes[:, None]
    return attention
