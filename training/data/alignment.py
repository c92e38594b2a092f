"""Reads word alignments: which words of a source and its target belong together.

The files have the Pharaoh format, as fast_align, eflomal and awesome-align write it. Each pair has
a line such as `0-0 1-2 2-1`: the number of a source word and the number of a target word, from 0.
Words are separated by blanks.
"""

import itertools
import re

from .reader import CorpusError, read_lines

LINK = re.compile(r"(\d{1,6})-(\d{1,6})", re.ASCII)


def with_links(pairs, path):
    """Yields the pairs with their links from a file, line by line. Raises a CorpusError."""
    both, linked = itertools.zip_longest(pairs, read_lines(path)), False
    for number, (pair, line) in enumerate(both, start=1):
        if pair is None or line is None:
            more, fewer = f"{number:,} or more", f"{number - 1:,}"
            lines, count = (more, fewer) if pair is None else (fewer, more)
            raise CorpusError(
                f"{path} must have a line for each pair, got {lines} lines and {count} pairs"
            )
        try:
            _check(line, pair)
        except ValueError as error:
            raise CorpusError(f"{path}, line {number:,}: {error}") from error
        links = " ".join(line.split())
        linked |= bool(links)
        yield pair._replace(links=links)
    if not linked:
        raise CorpusError(f"{path} must have links, such as 0-0 1-2, got none")


def _check(line, pair):
    """Raises a ValueError unless a line has only links, between existing words of the pair."""
    sizes = len(pair.source.split()), len(pair.target.split())
    for link in line.split():
        found = LINK.fullmatch(link)
        if not found:
            raise ValueError(f"a link must be two numbers such as 0-1, got {link!r}")
        for place, size, side in zip(found.groups(), sizes, ("source", "target"), strict=True):
            if int(place) >= size:
                raise ValueError(
                    f"{link} links word {place} of the {side}, counted from 0, which has {size}"
                )
