"""The user's own files as a corpus: which of their pairs are learned from, which validate."""

import itertools
import zlib

from training.data.reader import CorpusError, is_blank, read_pairs

HELD_OUT = 1000


def held_out(pair):
    """Whether a pair may be held out for validation, by its source alone: 1 source in 20."""
    return zlib.crc32(pair.source.encode()) % 20 == 0 and not is_blank(pair.source)


def _held_out_once(pairs):
    """The pairs that may be held out: none that is dropped, and of a source the first alone.

    Raises:
        CorpusError: of some pairs none may be.
    """
    taken, pair = set(), None
    for pair in pairs:
        if held_out(pair) and pair.source not in taken and not is_blank(pair.target):
            taken.add(pair.source)
            yield pair
    if pair and not taken:
        raise CorpusError(
            "none of the pairs could be held out for validation, as 1 source in 20 is: give "
            "--val-source and --val-target"
        )


def file_pairs(files, val_files, split, data, report=None):
    """The pairs of the user's files, (source, target) each, or (TSV, None).

    Without validation files 1 pair in 20, at most 1,000, is held out of the corpus; and with it
    every other pair of the same source, so that none is on both sides. What is counted is then
    counted of training and validation together, for training.
    """

    def corpus(report=None):
        return itertools.chain.from_iterable(read_pairs(*pair, report=report) for pair in files)

    if val_files:
        return read_pairs(*val_files, report=report) if split == "val" else corpus(report)
    if split == "val":
        return itertools.islice(_held_out_once(corpus()), HELD_OUT)
    sources = {pair.source for pair in file_pairs(files, val_files, "val", data)}
    return (pair for pair in corpus(report) if pair.source not in sources)


def origin_of(files, val_files):
    """The user's files in words: their names, not the folders that they lie in."""

    def names(paths):
        return " and ".join(f"`{path.name}`" for path in paths if path)

    corpus = ", ".join(map(names, files))
    if val_files:
        return f"{corpus}, for validation {names(val_files)}"
    return f"{corpus}, of which up to {HELD_OUT:,} pairs are held out for validation"
