"""Reads files of taggers in CoNLL style: a word and its tag a line, an empty line after a sentence.

Two kinds, known by their content:

    CoNLL-U     ten columns with tabs between, the first a number: the word is column 2, the tag
                column 4 (UPOS). Ranges (`1-2`) and empty nodes (`1.1`) are skipped.
    all others  such as CoNLL-2003, with tabs or with spaces between: the word is the first column,
                the tag the last.

`--columns WORD,TAG` names other columns by their numbers. Lines that begin with `-DOCSTART-` are
skipped, and so are comments: what begins with `#` before the first word of a sentence, and has no
tab.
"""

import os
import re

from training.data.reader import CorpusError, Pair, column_numbers, is_blank, read_lines

UNIVERSAL = 10  # columns of CoNLL-U
WORD, UPOS = 2, 4  # of them


def is_conll(path, columns=None):
    """Whether a file is in CoNLL style; if not, it is a TSV, of texts and their labels.

    It is if a line without a tab or an empty line comes before a text of several words; or if no
    text of it has several words, as in a CoNLL file that lacks its empty lines.

    Raises:
        CorpusError: the file cannot be read.
    """
    numbers = column_numbers(columns)
    if columns and len(numbers) != 2:
        return False
    place, empty = (numbers[0] if numbers else 1) - 1, True
    for _, line in _lines(path, None):
        if line is None:
            if not empty:
                return True
            continue
        cells, empty = line.split("\t"), False
        if len(cells) == 1 or _is_universal(cells):
            return True
        if len(cells[min(place, len(cells) - 1)].split()) > 1:
            return False
    return not empty


def read_conll(path, report=None, columns=None):
    """Yields the sentences of a file as pairs: its words, and as many tags, with spaces between.

    Args:
        path: the file.
        report: a `CorpusReport`, or None.
        columns: the numbers of the columns of word and tag, such as "1,3". Default: those that the
            module names.

    Raises:
        CorpusError: the file cannot be read, a line has another number of columns than the first
            or no word or tag, or there is no empty line.
    """
    words, tags, first, ended = [], [], None, False
    for number, line in _lines(path, report):
        if line is None:
            if words:
                yield Pair(" ".join(words), " ".join(tags))
                words, tags, ended = [], [], True
            continue
        cells = line.split("\t") if "\t" in line else line.split(" ")
        where = f"{os.fspath(path)}, line {number:,}"
        if first is None:
            first = cells
            word, tag = _places(where, first, columns)
            if report is not None:
                report.read_as = f"CoNLL, words in column {word + 1} and tags in column {tag + 1}"
        if len(cells) != len(first):
            raise CorpusError(
                f"{where}: must have {len(first)} columns, as the line of the first word has, got "
                f"{len(cells)}: {line[:60]!r}; texts need their labels, --labels or a TSV"
            )
        if _is_universal(first) and not cells[0].isdecimal():
            continue
        pair = cells[word].strip(), cells[tag].strip()
        if not all(pair) or " " in pair[1]:
            raise CorpusError(f"{where}: must have a word and a tag of one word, got {pair}")
        # (A word of CoNLL-U may have a space, and stays one word.)
        words.append(pair[0].replace(" ", "\u00a0"))
        tags.append(pair[1])
    if first and not ended:
        raise CorpusError(
            f"{os.fspath(path)} must have an empty line after each sentence, got {len(words):,} "
            "lines of a word and its tag, and no empty line"
        )
    if words:
        yield Pair(" ".join(words), " ".join(tags))


def _lines(path, report):
    """Yields (number, line) without what is skipped; an empty line is None."""
    inside = False
    for number, line in enumerate(read_lines(path, report=report), start=1):
        if is_blank(line):
            inside = False
            yield number, None
        elif not line.startswith("-DOCSTART-") and (inside or "\t" in line or line[0] != "#"):
            inside = True
            yield number, line if "\t" in line else " ".join(filter(None, line.split(" ")))


def _places(where, first, columns):
    """The places of word and tag in a line whose cells are `first`."""
    word, tag = column_numbers(columns) or (1, len(first))
    if not columns and _is_universal(first):
        word, tag = WORD, UPOS
    if len(first) < 2 or max(word, tag) > len(first):
        needed = f"--columns {columns} needs" if columns else "a word and its tag are"
        raise CorpusError(
            f"{where}: {needed} {max(word, tag, 2)} columns, with spaces or tabs between, got "
            f"{len(first)}: {' '.join(first)[:60]!r}"
        )
    return word - 1, tag - 1


def _is_universal(cells):
    """Whether these cells are a line of CoNLL-U."""
    return len(cells) == UNIVERSAL and bool(re.fullmatch(r"\d+([-.]\d+)?", cells[0]))
