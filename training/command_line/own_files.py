"""Reads the user's own files as a corpus, and splits their pairs into training and validation."""

import itertools
import zlib

from ..data.alignment import with_links
from ..data.conll import is_conll, read_conll
from ..data.reader import CorpusError, Pair, is_blank, read_columns, read_lines, read_pairs

HELD_OUT = 1000


def held_out(pair):
    """Whether a pair may be held out for validation: 1 source in 20, chosen by a hash of it."""
    return zlib.crc32(pair.source.encode()) % 20 == 0 and not is_blank(pair.source)


def _held_out_once(pairs, options, plain=False):
    """Yields the pairs that may be held out: not blank, and only the first pair of each source.

    `plain`: a pair is a text without a target. If none may be held out, the CorpusError names the
    `options` that give validation files.
    """
    taken, pair = set(), None
    for pair in pairs:
        has_target = plain or not is_blank(pair.target)
        if held_out(pair) and pair.source not in taken and has_target:
            taken.add(pair.source)
            yield pair
    if pair and not taken:
        what = "lines" if plain else "pairs"
        raise CorpusError(f"no {what} could be held out for validation (1 in 20): give {options}")


def _split(read, files, val_file, options, split, report, plain=False):
    """The pairs of a split, "train" or "val", of the user's files.

    `read` takes files and a `CorpusReport` or None, and yields their pairs. Without a validation
    file, 1 pair in 20 is held out of the corpus, at most 1,000. All other pairs of these sources
    are then left out of training, so that no source is in both splits. The report of training then
    counts both splits together.
    """
    if val_file is not None:
        return read([val_file] if split == "val" else files, report)

    def held_out_ones():
        return itertools.islice(_held_out_once(read(files, None), options, plain), HELD_OUT)

    if split == "val":
        return held_out_ones()
    sources = {pair.source for pair in held_out_ones()}
    return (pair for pair in read(files, report) if pair.source not in sources)


def pairs_of(source, target=None, links=None, *, report=None, columns=None, tagged=False):
    """The pairs of one part of the user's corpus: one file of columns, or two files.

    Args:
        links: a file of alignments, or None.
        columns: which columns of a file of columns to read, see `read_pairs`.
        tagged: whether the task is a tagger's. Then a file of columns may be in CoNLL style.
    """
    if tagged and target is None:
        # A pipe can be read only once, so the lines that `is_conll` reads are kept.
        first, lines = itertools.tee(read_lines(source, report=report))
        if is_conll(first, columns):
            return read_conll(source, report, columns, lines)
        return read_columns(source, lines, report, columns)
    pairs = read_pairs(source, target, report=report, columns=columns)
    return with_links(pairs, links) if links else pairs


def file_pairs(
    files, val_files, split, data, report=None, side="target", columns=None, tagged=False
):
    """The pairs of a split of the user's files.

    `files` are (source, target, links) each, `val_files` are (source, target) or None. The target
    of a TSV is None. `side` is the name of the second file's option.
    """

    def read(files, report):
        options = {"report": report, "columns": columns, "tagged": tagged}
        return itertools.chain.from_iterable(pairs_of(*paths, **options) for paths in files)

    options = f"--val-source and --val-{side}"
    if files[0][1] is None:
        options = "--val-source, or --columns 2,1 if the texts are the second column"
    return _split(read, files, val_files or None, options, split, report)


def plain_texts(files, val_file, split, data, report=None):
    """The lines of the user's files as pairs without a target. Each line is a text."""

    def read(files, report):
        lines = itertools.chain.from_iterable(read_lines(path, report=report) for path in files)
        return (Pair(line, "") for line in lines)

    return _split(read, files, val_file or None, "--val-text", split, report, plain=True)


def origin_of(files, val_files, unit="pairs"):
    """The names of the user's files in words, without their folders."""

    def names(paths):
        return " and ".join(f"`{path.name}`" for path in paths if path)

    corpus = ", ".join(map(names, files))
    if val_files:
        return f"{corpus}, for validation {names(val_files)}"
    return f"{corpus}; up to {HELD_OUT:,} {unit} are held out for validation"
