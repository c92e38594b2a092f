"""A corpus made ready for training: on disk, indexed, read by number in any order.

    text.bin     all texts end to end, UTF-8: source, target, source, target, ...
    index.npy    int64 [N, 5]: where a pair starts, the bytes and the tokens of both sides

Both are mapped into memory, so that the corpus may be larger than it, and gzip or slow disks cost
once. What training needs of a corpus is known before the first step: how many pairs there are,
how long they are, and therefore how many batches an epoch has.
"""

import itertools
from pathlib import Path

import numpy as np
import tensorflow as tf

COLUMNS = 5
START, SOURCE_BYTES, TARGET_BYTES, SOURCE_TOKENS, TARGET_TOKENS = range(COLUMNS)
BATCH = 1024


class Corpus:
    """The pairs of a folder written by `write_corpus`.

    Attributes:
        index: int64 [N, 5], mapped; see the columns above. Tokens count eos.
    """

    # The file that tells one corpus from another.
    content = "text.bin"

    def __init__(self, folder):
        folder = Path(folder)
        self.index = np.load(folder / "index.npy", mmap_mode="r")
        self.text = np.memmap(folder / self.content, dtype=np.uint8, mode="r")

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

    def tokens(self, numbers):
        """The real tokens of these pairs, source + target, eos counted."""
        return int(self.index[numbers, SOURCE_TOKENS:].sum())


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
    start = 0
    with open(folder / "text.bin", "wb") as text, open(folder / "rows.tmp", "wb") as rows:
        pairs = iter(pairs)
        while chunk := list(itertools.islice(pairs, BATCH)):
            sources = [pair.source.encode() for pair in chunk]
            targets = [pair.target.encode() for pair in chunk]
            source_tokens = tokenizer.encode_source(tf.constant(sources)).row_lengths().numpy()
            target_tokens = tokenizer.encode_target(tf.constant(targets)).row_lengths().numpy()
            for row in zip(sources, targets, source_tokens, target_tokens, strict=True):
                source, target, *tokens = row
                if max(tokens) > max_tokens:
                    report.kept -= 1
                    report.too_many_tokens += 1
                    continue
                text.write(source + target)
                rows.write(np.array([start, len(source), len(target), *tokens], "int64").tobytes())
                start += len(source) + len(target)
    # The header of an .npy file holds the number of rows, which is known only now.
    count = (folder / "rows.tmp").stat().st_size // (8 * COLUMNS)
    if count:
        rows = np.memmap(folder / "rows.tmp", dtype="int64", mode="r", shape=(count, COLUMNS))
        np.save(folder / "index.npy", rows)
    (folder / "rows.tmp").unlink()
    report.require_some("the corpus" if split == "train" else f"the validation corpus ({options})")
    return Corpus(folder)
