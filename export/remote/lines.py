"""Reads lines of text. Only the byte `\\n` ends a line; one `\\r` before it is removed."""

import re
from itertools import islice

# No model reads a longer text. The rest of a line is cut, so that it does not fill the memory.
MAX_BYTES = 2**20


def read_lines(file):
    """Yields the lines of a binary file as str, one at a time. Invalid UTF-8 is replaced."""
    while line := file.readline(MAX_BYTES):
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(MAX_BYTES)):
            pass
        yield line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")


def batches(items, size):
    """Yields lists of `size` items. The last one may be shorter."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def as_line(text):
    """A text as one line: a model with byte pieces may produce a newline."""
    return re.sub(r"[\r\n]+", " ", text)
