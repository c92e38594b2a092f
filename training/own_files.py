"""The user's own files as a corpus: which of their pairs are learned from, which validate."""

import itertools
import zlib

from training.data.reader import CorpusError, Pair, is_blank, read_lines, read_pairs

HELD_OUT = 1000


def held_out(pair):
    """Whether a pair may be held out for validation, by its source alone: 1 source in 20."""
    return zlib.crc32(pair.source.encode()) % 20 == 0 and not is_blank(pair.source)


def _held_out_once(pairs, options, plain=False):
    """The pairs that may be held out: none that is dropped, and of a source the first alone.

    Args:
        pairs: of the corpus.
        options: those that name files for validation, for the error.
        plain: whether a pair is a text, without a target.

    Raises:
        CorpusError: of some pairs none may be.
    """
    taken, pair = set(), None
    for pair in pairs:
        has_target = plain or not is_blank(pair.target)
        if held_out(pair) and pair.source not in taken and has_target:
            taken.add(pair.source)
            yield pair
    if pair and not taken:
        what = "lines" if plain else "pairs"
        raise CorpusError(
            f"none of the {what} could be held out for validation, as 1 in 20 is: give {options}"
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
        options = "--val-source and --val-target"
        return itertools.islice(_held_out_once(corpus(), options), HELD_OUT)
    sources = {pair.source for pair in file_pairs(files, val_files, "val", data)}
    return (pair for pair in corpus(report) if pair.source not in sources)


def plain_texts(files, val_file, split, data, report=None):
    """The lines of the user's files as pairs without a target; a line is a text.

    Without a file for validation 1 line in 20, at most 1,000, is held out, and every line like it.
    """

    def corpus(report=None):
        lines = itertools.chain.from_iterable(read_lines(path, report=report) for path in files)
        return (Pair(line, "") for line in lines)

    if val_file:
        if split == "val":
            return (Pair(line, "") for line in read_lines(val_file, report=report))
        return corpus(report)
    if split == "val":
        return itertools.islice(_held_out_once(corpus(), "--val-text", plain=True), HELD_OUT)
    texts = {pair.source for pair in plain_texts(files, val_file, "val", data)}
    return (pair for pair in corpus(report) if pair.source not in texts)


def origin_of(files, val_files, unit="pairs"):
    """The user's files in words: their names, not the folders that they lie in."""

    def names(paths):
        return " and ".join(f"`{path.name}`" for path in paths if path)

    corpus = ", ".join(map(names, files))
    if val_files:
        return f"{corpus}, for validation {names(val_files)}"
    return f"{corpus}, of which up to {HELD_OUT:,} {unit} are held out for validation"
