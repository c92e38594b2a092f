"""Lines of text: one ends at the byte `\\n` and nowhere else; one `\\r` before it is stripped."""

from itertools import islice


def read_lines(file):
    """The lines of a binary file, str, a few at a time in memory; what is no UTF-8 is replaced."""
    for line in file:
        yield line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")


def batches(items, size):
    """Lists of `size` items each, the last one shorter."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch
