"""Lines of text: one ends at the byte `\\n` and nowhere else; one `\\r` before it is stripped."""

import re
from itertools import islice

# No model takes so long a text whole: the rest is cut, so that no line fills the memory.
MOST_BYTES = 2**20


def read_lines(file):
    """The lines of a binary file, str, one in memory; what is no UTF-8 is replaced."""
    while line := file.readline(MOST_BYTES):
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(MOST_BYTES)):
            pass
        yield line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")


def batches(items, size):
    """Lists of `size` items each, the last one shorter."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def as_line(text):
    """A text as a line: a model that knows single bytes may answer with a new line."""
    return re.sub(r"[\r\n]+", " ", text)
