"""A corpus made ready for training: on disk, indexed, read by number in any order.

    text.bin     all texts end to end, UTF-8: source, target, links, source, target, links, ...
    index.npy    int64 [N, 6]: where a pair starts, the bytes and the tokens of both sides, and the
                 bytes of the links between their words, see `training.data.alignment`

(Older runs have five columns, and no links.)

Both are mapped into memory, so that the corpus may be larger than it, and gzip or slow disks cost
once. What training needs of a corpus is known before the first step: how many pairs there are,
how long they are, and therefore how many batches an epoch has.
"""

import itertools
from pathlib import Path

import numpy as np
import tensorflow as tf

from training.data.links import Links

COLUMNS = 6
START, SOURCE_BYTES, TARGET_BYTES, SOURCE_TOKENS, TARGET_TOKENS, LINKS_BYTES = range(COLUMNS)
TOKENS = slice(SOURCE_TOKENS, LINKS_BYTES)
BATCH = 1024


class Corpus:
    """The pairs of a folder written by `write_corpus`.

    Attributes:
        index: int64 [N, 6], mapped; see the columns above. Tokens count eos.
        has_links: whether a pair has links between its words.
    """

    # The file that tells one corpus from another.
    content = "text.bin"

    def __init__(self, folder):
        folder = Path(folder)
        self.index = np.load(folder / "index.npy", mmap_mode="r")
        self.text = np.memmap(folder / self.content, dtype=np.uint8, mode="r")
        self.has_links = bool(self.index[:, LINKS_BYTES:].any())

    def __len__(self):
        return len(self.index)

    def texts(self, numbers):
        """The texts of the pairs of these numbers: a list of sources and a list of targets."""
        sources, targets = [], []
        for start, source, target in self.index[numbers, :SOURCE_TOKENS]:
            middle = start + source
            sources.append(self.text[start:middle].tobytes())
            targets.append(self.text[middle : middle + target].tobytes())
        return sources, targets

    def links(self, numbers):
        """The links between the words of the pairs of these numbers."""
        start = self.index[numbers, START:SOURCE_TOKENS].sum(axis=1)
        ends = start + self.index[numbers, LINKS_BYTES]
        return [self.text[a:b].tobytes() for a, b in zip(start, ends, strict=True)]

    def tokens(self, numbers):
        """The real tokens of these pairs, source + target, eos counted."""
        return int(self.index[numbers, TOKENS].sum())


def write_corpus(
    folder,
    pairs,
    tokenizer,
    max_tokens,
    report,
    split="train",
    options="--val-source, --val-target",
):
    """Writes the pairs into a new folder, and counts in `report` what it drops.

    Args:
        folder: made here.
        pairs: an iterable of `reader.Pair`.
        tokenizer: counts the tokens.
        max_tokens: a pair with a longer side, eos counted, is dropped.
        report: a `reader.CorpusReport`.
        split: what the pairs are for, `"train"` or `"val"`: said when there are none.
        options: those that name files for validation, said then too.

    Returns:
        The `Corpus`. Memory does not grow with it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True)
    start, words = 0, None
    with open(folder / "text.bin", "wb") as text, open(folder / "rows.tmp", "wb") as rows:
        pairs = iter(pairs)
        while chunk := list(itertools.islice(pairs, BATCH)):
            sources = [pair.source.encode() for pair in chunk]
            targets = [pair.target.encode() for pair in chunk]
            encoded = [
                tokenizer.encode_source(tf.constant(sources)),
                tokenizer.encode_target(tf.constant(targets)),
            ]
            source_tokens, target_tokens = (ids.row_lengths().numpy() for ids in encoded)
            links = [pair.links.encode() for pair in chunk]
            if any(links):
                words = words or Links(tokenizer)
                links = fitting(links, chunk, words, encoded, report)
            for row in zip(sources, targets, links, source_tokens, target_tokens, strict=True):
                source, target, linked, *tokens = row
                if max(tokens) > max_tokens:
                    report.kept -= 1
                    report.too_many_tokens += 1
                    continue
                text.write(source + target + linked)
                row = [start, len(source), len(target), *tokens, len(linked)]
                rows.write(np.array(row, "int64").tobytes())
                start += len(source) + len(target) + len(linked)
    # The header of an .npy file holds the number of rows, which is known only now.
    count = (folder / "rows.tmp").stat().st_size // (8 * COLUMNS)
    if count:
        rows = np.memmap(folder / "rows.tmp", dtype="int64", mode="r", shape=(count, COLUMNS))
        np.save(folder / "index.npy", rows)
    (folder / "rows.tmp").unlink()
    report.require_some("the corpus" if split == "train" else f"the validation corpus ({options})")
    return Corpus(folder)


def fitting(links, pairs, words, encoded, report):
    """The links of pairs whose pieces have the words that they are between; of others none, which
    are counted in `report`.

    Args:
        links: byte strings, one a pair.
        pairs: a list of `reader.Pair`.
        words: the `Links` of the tokenizer.
        encoded: the ids of their sources and of their targets.
        report: see `write_corpus`.
    """
    counts = [[len(text.split()) for text in (pair.source, pair.target)] for pair in pairs]
    fit = words.fit(*encoded, counts).numpy()
    report.unlinked += sum(bool(link) and not fits for link, fits in zip(links, fit, strict=True))
    return [link if fits else b"" for link, fits in zip(links, fit, strict=True)]
