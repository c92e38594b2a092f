"""Reads files for taggers in CoNLL style.

Each line has a word and its tag, and an empty line ends a sentence.

The content decides between two kinds:

    CoNLL-U     ten columns separated by tabs, the first a number: the word is column 2, the tag
                column 4 (UPOS). Ranges (`1-2`) and empty nodes (`1.1`) are skipped.
    all others  such as CoNLL-2003, separated by tabs or spaces: the word is the first column, the
                tag the last.

`--columns WORD,TAG` names other columns by number. Lines that begin with `-DOCSTART-` are skipped,
and so are comments: lines that begin with `#` and have another number of columns than a word.
"""

import os
import re

from .reader import CorpusError, Pair, column_numbers, is_blank, read_lines

UNIVERSAL = 10  # the number of columns in CoNLL-U
WORD, UPOS = 2, 4  # two of them
# Comments that may have as many columns as a word: "# sent_id = 3", "# id 5".
COMMENT = r"#\s*(\w+\s*=|id\s)"


def is_conll(lines, columns=None):
    """Whether the lines of a file are in CoNLL style. If not, it is a TSV of texts and labels.

    A line without a tab, or an empty line, before any text of several words means CoNLL. So does a
    file without texts of several words, which is a CoNLL file without its empty lines. Lines are
    only read as far as needed.
    """
    numbers = column_numbers(columns)
    if columns and len(numbers) != 2:
        return False
    place, empty = (numbers[0] if numbers else 1) - 1, True
    for _, line in _words(lines):
        if line is None:
            if not empty:
                return True
            continue
        cells, empty = line.split("\t"), False
        if len(cells) == 1 or _is_universal(cells):
            return True
        if len(cells[min(place, len(cells) - 1)].strip(" ").split(" ")) > 1:
            return False
    return not empty


def read_conll(path, report=None, columns=None, lines=None):
    """Yields the sentences of a file as pairs: the words and the tags, separated by spaces.

    Args:
        lines: the lines of the file, if they were already read.
        columns: the numbers of the columns of word and tag, such as "1,3".

    Raises:
        CorpusError: the file cannot be read; a line has no word, no tag or another number of
            columns than the first line; or there is no empty line.
    """
    words, tags, first, ended = [], [], None, False
    for number, line in _words(read_lines(path, report=report) if lines is None else lines):
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
                f"{where}: must have {len(first)} columns, like the line of the first word, got "
                f"{len(cells)}: {line[:60]!r}; for texts with labels, give --labels or a TSV"
            )
        if _is_universal(first) and not cells[0].isdecimal():
            continue
        pair = cells[word].strip(" "), cells[tag].strip(" ")
        if not all(pair) or " " in pair[1]:
            raise CorpusError(f"{where}: must have a word and a tag of one word, got {pair}")
        # A word of CoNLL-U may contain a space and stays one word.
        words.append(pair[0].replace(" ", "\u00a0"))
        tags.append(pair[1])
    if first and not ended:
        raise CorpusError(
            f"{os.fspath(path)} must have an empty line after each sentence, got {len(words):,} "
            "lines with a word and its tag, but no empty line; if each line is a text, give its "
            "labels in a second file, --labels"
        )
    if words:
        yield Pair(" ".join(words), " ".join(tags))


def _words(lines):
    """Yields (number, line) for the lines of words. An empty line is None.

    A line that begins with `#` is a word if it is no known kind of comment and has as many columns
    as the first line that does not begin with `#`.
    """
    width, waiting = None, []
    for number, line in enumerate(lines, start=1):
        if is_blank(line):
            found = None
        elif line.startswith("-DOCSTART-") or re.match(COMMENT, line):
            continue
        else:
            found = line if "\t" in line else " ".join(filter(None, line.split(" ")))
        if width is None and (found is None or found[0] == "#"):
            waiting.append((number, found))
            continue
        if width is None:
            width = _width(found)
            yield from (one for one in waiting if one[1] is None or _width(one[1]) == width)
        if found is None or found[0] != "#" or _width(found) == width:
            yield number, found
    if width is None:
        yield from waiting


def _width(line):
    return len(line.split("\t") if "\t" in line else line.split(" "))


def _places(where, first, columns):
    """The indices of word and tag in a line with the cells `first`."""
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
