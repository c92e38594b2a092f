r"""Reads parallel text: splits it into lines, selects usable pairs and counts the others.

A corpus is two files, where line N of one is the translation of line N of the other, or one file
with columns separated by tabs (TSV). `training.data.conll` reads a third kind, for taggers. So
everything depends on the definition of a line.
Readers disagree about it. For the same file, `tf.data.TextLineDataset`, Python's text mode and
`str.splitlines` count three different numbers of lines, because U+2028, vertical tab, NEL (U+0085)
or a lone carriage return end a line for one and not for another. A pair of files that is split by
two definitions is misaligned from there on, without any warning. Here:

    a line ends at the byte `\n` and nowhere else; one `\r` before it is stripped;
    a last line without `\n` is a line; a final `\n` does not start an empty line;
    a UTF-8 byte order mark at the file's start is stripped;
    invalid UTF-8 becomes U+FFFD and is counted: it is never an error.

Everything else stays unchanged in its line, also NUL and other control characters. The tokenizer
cleans characters, because this must be the same when a model is served.

    report = CorpusReport()
    pairs = list(clean_pairs(read_pairs("train.en", "train.de", report=report), report))
    report.require_some("train.en, train.de")
    print(report)       # 29,000 pairs kept; nothing dropped
"""

import contextlib
import gzip
import itertools
import os
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

StrPath = str | os.PathLike

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"  # no UTF-8 text starts like this: 0x8b cannot follow 0x1f

CHUNK_SIZE = 1 << 18  # bytes in a read: few calls and little memory

# Longer than nearly every sentence; it limits the cost of tokenising one.
MAX_CHARACTERS = 1000

# Ratio of lengths in characters, the longer text over the shorter. 9 is the limit in Moses'
# `clean-corpus-n.perl`. An English sentence has about 3 times the characters of its Chinese or
# Japanese translation, so a ratio of 9 is three times what even two such scripts explain.
MAX_LENGTH_RATIO = 9.0

# Up to this length of the longer text, every ratio is allowed: an abbreviation and its full name, a
# word and its explanation, a Chinese idiom of 4 characters and the 50 that it takes in English.
RATIO_FREE_CHARACTERS = 60

# Categories of the Unicode characters that are invisible: control, format (zero-width spaces and
# joiners, soft hyphen, byte order mark), and the separators of words, lines and paragraphs.
INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})


# Names that certainly make the first line of a TSV a header.
SOURCE_NAMES = frozenset({"source", "text", "sentence"})
TARGET_NAMES = frozenset({"target", "label", "labels", "tag", "tags", "class", "category"})


class CorpusError(ValueError):
    """A corpus cannot be used. The message names the file and the fault."""


class Pair(NamedTuple):
    """A text and its translation. `group` (a language, a domain) and `links` between their words
    are "" if there are none; for links see `training.data.alignment`."""

    source: str
    target: str
    group: str = ""
    links: str = ""


@dataclass
class CorpusReport:
    """The number of pairs, or texts, that were kept, and that were dropped for each reason.

    Attributes:
        ratio: dropped, one text is far too long compared with the other.
        too_many_tokens: dropped later, after the tokenizer has counted; not by this module. The
            code that adds one here subtracts one from `kept`.
        unknown_label: dropped later from validation: its label is not in the training corpus.
        unmatched: dropped, the numbers of labels and words differ, for example.
        unlinked: kept, but without links: the tokenizer's words differ from those between blanks.
        invalid_utf8: lines (not pairs) in which U+FFFD replaces invalid bytes.
        unit: the unit of the counts, `"pair"` or `"text"`.
        read_as: the recognised format of the file, if its content decided it; otherwise "".
    """

    kept: int = 0
    blank: int = 0
    too_long: int = 0
    ratio: int = 0
    too_many_tokens: int = 0
    unknown_label: int = 0
    unmatched: int = 0
    unlinked: int = 0
    invalid_utf8: int = 0
    unit: str = "pair"
    read_as: str = ""

    def __str__(self) -> str:
        counts = {
            "blank": self.blank,
            "too long": self.too_long,
            "of absurd length ratio": self.ratio,
            "of too many tokens": self.too_many_tokens,
            "of an unknown label": self.unknown_label,
            "whose sides do not belong together": self.unmatched,
        }
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)
        text = f"{_count(self.kept, self.unit)} kept; "
        text += f"dropped {dropped}" if dropped else "nothing dropped"
        if self.unlinked:
            words = "with other words for the tokenizer than between blanks"
            text += f"; {_count(self.unlinked, self.unit)} {words}, without their links"
        if self.invalid_utf8:
            text += f"; {_count(self.invalid_utf8, 'line')} with invalid UTF-8, replaced by U+FFFD"
        if self.read_as:
            text += f"; read as {self.read_as}"
        return text

    def require_some(self, what: str) -> None:
        """Raises `CorpusError` if no pairs were kept from `what`, the names of the files."""
        if self.kept == 0:
            raise CorpusError(f"no {self.unit} to use in {what}: {self}")


def read_lines(
    path: StrPath, *, report: CorpusReport | None = None, chunk_size: int = CHUNK_SIZE
) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file, plain or gzip (recognised by content, not by name).

    The file is read in one pass, so it may be a pipe. Memory holds at most one chunk of
    `chunk_size` bytes and one line. The report counts the lines with invalid bytes.

    Raises:
        CorpusError: the file is missing, a directory, not readable, or a damaged gzip file.
    """
    for line in _split(_chunks(path, chunk_size)):
        line = line.removesuffix(b"\r")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            text = line.decode("utf-8", errors="replace")
            if report is not None:
                report.invalid_utf8 += 1
        yield text


def read_pairs(
    source: StrPath,
    target: StrPath | None = None,
    *,
    report: CorpusReport | None = None,
    columns: str | None = None,
) -> Iterator[Pair]:
    """Yields the pairs of two parallel files, or of one TSV file if `target` is None.

    A TSV line has the columns source, target and optionally group. There is no quoting or escaping:
    each tab ends a column. If the first line names a source (`SOURCE_NAMES`) and a target
    (`TARGET_NAMES`), it is a header: it gives the columns and is skipped.

    Args:
        columns: for a TSV with other columns, the ones to read, in the order source, target and
            optionally group: their numbers, `"2,1"`, or their names in the first line,
            `"review,stars"`.

    Raises:
        CorpusError: a file cannot be read; a TSV line has another number of columns, or the first
            lacks one of `columns`; or the two files differ in length. The last error is raised only
            at the end, after the pairs that the files have in common. Do not use any pair before
            the iteration has ended.
    """
    if target is None:
        return read_columns(source, read_lines(source, report=report), report, columns)
    return _read_parallel(source, target, report)


def require_files(paths: Iterable[StrPath]) -> None:
    """Raises `CorpusError` for paths that can only be read once, such as a pipe."""
    for path in map(Path, paths):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise CorpusError(f"{path} must be a regular file, because it is read several times")


def require_readable(paths: Iterable[StrPath]) -> None:
    """Raises `CorpusError` for a file whose beginning cannot be read."""
    for path in paths:
        with contextlib.closing(read_lines(path)) as lines:
            next(lines, None)


def require_lengths(source: StrPath, target: StrPath) -> None:
    """Raises `CorpusError`, before any other work, if two files differ in length."""
    _require_lengths(source, target, *(sum(1 for _ in read_lines(p)) for p in (source, target)))


def clean_pairs(
    pairs: Iterable[Pair],
    report: CorpusReport,
    *,
    max_characters: int = MAX_CHARACTERS,
    max_length_ratio: float = MAX_LENGTH_RATIO,
) -> Iterator[Pair]:
    """Yields the pairs that are usable for training, unchanged, and counts them and all others.

    A pair is dropped for the first of these reasons that applies:

        blank     source or target is blank;
        too_long  source or target has more than `max_characters` characters;
        ratio     the longer text has more than 60 characters and more than `max_length_ratio`
                  times those of the shorter, so it is hardly a translation of it.

    Summaries are much shorter than their sources. For them, set `max_length_ratio=math.inf`.

    Raises:
        ValueError: a limit is below 1.
    """
    if not max_characters >= 1:
        raise ValueError(f"max_characters must be at least 1, got {max_characters}")
    if not max_length_ratio >= 1:
        raise ValueError(f"max_length_ratio must be at least 1, got {max_length_ratio}")

    def fit(pair: Pair) -> bool:
        shorter, longer = sorted((len(pair.source), len(pair.target)))
        if is_blank(pair.source) or is_blank(pair.target):
            report.blank += 1
        elif longer > max_characters:
            report.too_long += 1
        elif longer > RATIO_FREE_CHARACTERS and longer > max_length_ratio * shorter:
            report.ratio += 1
        else:
            report.kept += 1
            return True
        return False

    return filter(fit, pairs)


def clean_texts(pairs: Iterable[Pair], report: CorpusReport) -> Iterator[Pair]:
    """Yields the pairs whose source is not blank, and counts them and all others."""
    for pair in pairs:
        if is_blank(pair.source):
            report.blank += 1
        else:
            report.kept += 1
            yield pair


def is_blank(text: str) -> bool:
    """Whether `text` is blank: empty, or only spaces, controls and zero-width characters.

    The result is the same before and after the tokenizer's NFKC normalisation, which converts the
    wide space U+3000 and the no-break space U+00A0 to a plain space.
    """
    return all(unicodedata.category(character) in INVISIBLE for character in text)


def _chunks(path: StrPath, size: int) -> Iterator[bytes]:
    """The unpacked bytes of a file, without its byte order mark."""
    try:
        with open(path, "rb") as file:
            packed = file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
            stream = gzip.GzipFile(fileobj=file) if packed else file
            yield stream.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK)
            while chunk := stream.read(size):
                yield chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(f"{os.fspath(path)} is a damaged gzip file: {error}") from error
    except OSError as error:
        raise CorpusError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    r"""Splits at `\n`. The parts of a line are joined only once, however many chunks it spans."""
    parts = []
    for chunk in chunks:
        end, *others = chunk.split(b"\n")
        parts.append(end)
        for start in others:
            yield b"".join(parts)
            parts = [start]
    if last := b"".join(parts):
        yield last


def _read_parallel(source: StrPath, target: StrPath, report: CorpusReport | None) -> Iterator[Pair]:
    sources = targets = 0
    both = itertools.zip_longest(
        read_lines(source, report=report), read_lines(target, report=report)
    )
    for source_line, target_line in both:
        sources += source_line is not None
        targets += target_line is not None
        if sources == targets:  # false for all later lines once one file has ended before the other
            yield Pair(source_line, target_line)
    _require_lengths(source, target, sources, targets)


def _require_lengths(source: StrPath, target: StrPath, sources: int, targets: int) -> None:
    if sources != targets:
        raise CorpusError(
            f"{os.fspath(source)} has {_count(sources, 'line')} and {os.fspath(target)} has "
            f"{_count(targets, 'line')}: line N of one must belong to line N of the other"
        )


def read_columns(
    path: StrPath, lines: Iterable[str], report: CorpusReport | None, columns: str | None
) -> Iterator[Pair]:
    """Yields the pairs of a TSV, whose lines are read already; see `read_pairs`."""
    chosen, width = None, None
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if number == 1:
            chosen, is_header = _chosen(path, cells, columns)
            width = len(cells) if chosen else None
            if is_header:
                if report is not None:
                    names = (repr(cells[place]) for place in chosen)
                    report.read_as = f"a TSV with a header, columns {' and '.join(names)}"
                continue
        if len(cells) not in ((2, 3) if width is None else (width,)):
            raise CorpusError(_another_number(path, number, cells, width))
        yield Pair(*([cells[place] for place in chosen] if chosen else cells))


def _chosen(path: StrPath, first: list[str], columns: str | None) -> tuple[list[int] | None, bool]:
    """The indices of the columns to read, or None for all; and whether the first line, with the
    cells `first`, is a header."""
    names = [cell.strip().lower() for cell in first]
    sides = [
        [place for place, name in enumerate(names) if name in known]
        for known in (SOURCE_NAMES, TARGET_NAMES)
    ]
    is_header = len(sides[0]) == len(sides[1]) == 1 and "question" not in names
    if columns is None and is_header:
        chosen = [*sides[0], *sides[1]]
        # Of three columns the one that is left is the group.
        others = [place for place in range(len(names)) if place not in chosen]
        return chosen + others * (len(names) == 3), True
    if columns is None:
        return None, False
    if numbers := column_numbers(columns):
        if max(numbers) > len(first):
            raise CorpusError(
                f"{os.fspath(path)}, line 1: --columns {columns} needs {max(numbers):,} columns, "
                f"got {_count(len(first), 'column')}: {_shown(first)}"
            )
        return [number - 1 for number in numbers], is_header
    found = [cell.strip() for cell in first]
    for name in columns.split(","):
        if name not in found:
            raise CorpusError(
                f"{os.fspath(path)}, line 1: --columns {columns} needs a header with {name!r}, got "
                f"{_shown(first)}; without a header give numbers, such as --columns 2,1"
            )
    return [found.index(name) for name in columns.split(",")], True


def column_numbers(columns: str | None) -> list[int]:
    """The numbers in `--columns`, from 1; an empty list if it has names, or nothing."""
    words = columns.split(",") if columns else []
    return (
        [int(word) for word in words]
        if all(re.fullmatch("0*[1-9][0-9]{0,5}", w) for w in words)
        else []
    )


def _another_number(path: StrPath, number: int, cells: list[str], width: int | None) -> str:
    """The error message for a TSV line with a wrong number of columns."""
    found = f"{os.fspath(path)}, line {number:,}: {_count(len(cells), 'column')}, but "
    if width is not None:
        return f"{found}the first line has {width:,}; got {_shown(cells)}"
    hint = "or give a second file, --target or --labels"
    if len(cells) > 1:
        hint = "--columns 1,2 reads the first two"
        if number == 1:
            hint += f", and if this line is a header, --columns {cells[0]},{cells[1]}"
    return (
        f"{found}a line must be source (or text), target (or labels) and perhaps group, with tabs "
        f"between, got {_shown(cells)}; {hint}"
    )


def _shown(cells: list[str]) -> str:
    """The first columns of a line, each shortened."""
    shown = [repr(cell if len(cell) <= 30 else f"{cell[:30]}...") for cell in cells[:5]]
    return ", ".join([*shown, "..."] if len(cells) > 5 else shown)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
