"""A prepared corpus on disk, with an index, so that pairs can be read by number in any order.

    text.bin     all texts end to end, UTF-8: source, target, links, source, target, links, ...
    index.npy    int64 [N, 6]: the start of a pair, the bytes and tokens of source and target, and
                 the bytes of the links between their words, see `training.data.alignment`

(Older runs have five columns and no links.)

Both files are memory-mapped, so the corpus may be larger than memory, and gzip files or slow disks
are read only once. Everything that training needs is known before the first step: the number of
pairs, their lengths, and therefore the number of batches in an epoch.
"""

import itertools
from pathlib import Path

import numpy as np
import tensorflow as tf

from .links import Links

COLUMNS = 6
START, SOURCE_BYTES, TARGET_BYTES, SOURCE_TOKENS, TARGET_TOKENS, LINKS_BYTES = range(COLUMNS)
TOKENS = slice(SOURCE_TOKENS, LINKS_BYTES)
BATCH = 1024


class Corpus:
    """The pairs of a folder written by `write_corpus`.

    Attributes:
        index: int64 [N, 6], memory-mapped; see the columns above. Token counts include eos.
        has_links: whether any pair has links between its words.
    """

    # The file that identifies a corpus.
    content = "text.bin"

    def __init__(self, folder):
        folder = Path(folder)
        self.index = np.load(folder / "index.npy", mmap_mode="r")
        self.text = np.memmap(folder / self.content, dtype=np.uint8, mode="r")
        self.has_links = bool(self.index[:, LINKS_BYTES:].any())

    def __len__(self):
        return len(self.index)

    def texts(self, numbers):
        """The texts of the pairs with these numbers: a list of sources and a list of targets."""
        sources, targets = [], []
        for start, source, target in self.index[numbers, :SOURCE_TOKENS]:
            middle = start + source
            sources.append(self.text[start:middle].tobytes())
            targets.append(self.text[middle : middle + target].tobytes())
        return sources, targets

    def links(self, numbers):
        """The links between the words of the pairs with these numbers."""
        start = self.index[numbers, START:SOURCE_TOKENS].sum(axis=1)
        ends = start + self.index[numbers, LINKS_BYTES]
        return [self.text[a:b].tobytes() for a, b in zip(start, ends, strict=True)]

    def tokens(self, numbers):
        """The number of real tokens of these pairs, source + target, with eos."""
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
    """Writes the pairs into a new folder, and counts the dropped pairs in `report`.

    Memory use does not grow with the corpus. A pair is dropped if its source or target has more
    than `max_tokens` tokens, with eos. The split and the `options` for validation files are used in
    the error if there are no pairs.
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
    # The header of an .npy file needs the number of rows, which is known only now.
    count = (folder / "rows.tmp").stat().st_size // (8 * COLUMNS)
    if count:
        rows = np.memmap(folder / "rows.tmp", dtype="int64", mode="r", shape=(count, COLUMNS))
        np.save(folder / "index.npy", rows)
    (folder / "rows.tmp").unlink()
    report.require_some("the corpus" if split == "train" else f"the validation corpus ({options})")
    return Corpus(folder)


def fitting(links, pairs, words, encoded, report):
    """Keeps the links of pairs whose pieces form the same words as the text; removes all others and
    counts them in `report`. `encoded` are the ids of sources and targets."""
    counts = [[len(text.split()) for text in (pair.source, pair.target)] for pair in pairs]
    fit = words.fit(*encoded, counts).numpy()
    report.unlinked += sum(bool(link) and not fits for link, fits in zip(links, fit, strict=True))
    return [link if fits else b"" for link, fits in zip(links, fit, strict=True)]
