"""Writes a corpus without its faulty pairs, for `training.inspect`."""

import contextlib
import gzip
import itertools
import re
from collections import Counter
from pathlib import Path

from tfformer.files import sync, whole_folder

from .corpus_checks import hashes, reasons_of
from .reader import CorpusError


class Cleaner:
    """Selects the pairs of a corpus that have no fault, and counts the others by their reason.

    Args:
        letters: the `Letters` of the corpus.
        others: {name: pairs} of the validation and test corpora.
        dropped: the reasons for which a pair is dropped: those of `reasons_of`, "in validation or
            test", and "occurs before".

    Attributes:
        counts: a `Counter` of the reasons, and of "kept". A pair counts for its first reason.
    """

    def __init__(self, letters, others, dropped):
        self.letters, self.dropped, self.counts = letters, frozenset(dropped), Counter()
        self._others = {
            code for pairs in others.values() for code in hashes(map(_text, pairs)).tolist()
        }
        self._seen = set()

    def kept(self, pairs):
        """Yields the pairs that are kept."""
        for pair in pairs:
            reason = next(filter(self.dropped.__contains__, self._reasons(pair)), "kept")
            self.counts[reason] += 1
            if reason == "kept":
                yield pair

    def _reasons(self, pair):
        yield from reasons_of(pair, self.letters)
        if self._others and hashes([_text(pair)])[0].item() in self._others:
            yield "in validation or test"
        # Only the hash is stored. Two different pairs of ten million share one with a probability
        # of about 1 in 400,000.
        code = hash(pair)
        if code in self._seen:
            yield "occurs before"
        self._seen.add(code)


def _text(pair):
    return f"{pair.source}\t{pair.target}"


def write_corpus(folder, names, pairs):
    """Writes pairs to a new folder, complete or not at all: two files, or one TSV.

    A name that ends in .gz gets a gzip file. A TSV has the columns source and target, and group if
    a pair has one; it has no header.

    Args:
        folder: a path that does not exist, or an empty folder.
        names: the names of the two files, or of the TSV.
        pairs: an iterable of `Pair`s.

    Raises:
        CorpusError: there is no pair.
    """
    folder, pairs = Path(folder).resolve(), iter(pairs)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder, "|".join(map(re.escape, names))) as partial:
        with contextlib.ExitStack() as opened:
            files = [opened.enter_context(_new_text(partial / name)) for name in names]
            if (first := next(pairs, None)) is None:
                raise CorpusError("no pair is left after cleaning")
            for pair in itertools.chain([first], pairs):
                texts = [pair.source, pair.target]
                if len(files) == 1:
                    texts = ["\t".join(texts + [pair.group] * bool(pair.group))]
                for file, text in zip(files, texts, strict=True):
                    file.write(f"{text}\n")
        sync(*partial.iterdir(), partial)
    sync(folder.parent)


def _new_text(path):
    r"""A new text file, compressed if its name ends in .gz. A line ends with `\n` only."""
    create = gzip.open if path.suffix == ".gz" else open
    return create(path, "xt", encoding="utf-8", newline="\n")
