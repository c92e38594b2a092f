"""A corpus of plain texts as ids, and batches of it with full rows.

    ids.bin      int32, all texts end to end, each ending with eos
    index.npy    int64 [N, 2]: the number of tokens of a text, with eos, and its bytes in UTF-8

Texts may have any length. An epoch concatenates all texts in its own order and cuts the result into
rows. Only the positions after the last text are padding. A text may continue in the next row, which
then does not see its earlier part (`tfformer.layers.packing.Joined`).

Both files are memory-mapped, as in `training.data.corpus`.
"""

import itertools
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfformer.config import BOS, PAD

from .corpus import BATCH
from .epochs import Epochs

TOKENS, BYTES = range(2)


class JoinedCorpus:
    """The texts of a folder written by `write`; its arrays are memory-mapped.

    Attributes:
        index: int64 [N, 2]; see the columns above.
        ids: int32.
        starts: int64 [N + 1], where each text begins in `ids`, and the end of the last.
    """

    # The file that identifies a corpus.
    content = "ids.bin"
    has_links = False

    def __init__(self, folder):
        folder = Path(folder)
        self.index = np.load(folder / "index.npy", mmap_mode="r")
        self.ids = np.memmap(folder / self.content, dtype=np.int32, mode="r")
        self.starts = np.concatenate([[0], np.cumsum(self.index[:, TOKENS])])

    def __len__(self):
        return len(self.index)

    @property
    def tokens(self):
        """The number of tokens of all texts, with eos."""
        return int(self.starts[-1])

    @property
    def bytes_per_token(self):
        """The mean number of UTF-8 bytes for each token."""
        return float(self.index[:, BYTES].sum() / self.tokens)

    def text_ids(self, number):
        """int32 [n], the ids of a text with eos at the end."""
        return self.ids[self.starts[number] : self.starts[number + 1]]

    @classmethod
    def write(cls, folder, pairs, tokenizer, max_tokens, report, split="train"):
        """Writes the sources of pairs into a new folder; see `training.data.corpus.write_corpus`.

        No text is too long, so `max_tokens` drops none.
        """
        folder = Path(folder)
        folder.mkdir(parents=True)
        index, pairs = [], iter(pairs)
        with open(folder / cls.content, "wb") as file:
            while chunk := list(itertools.islice(pairs, BATCH)):
                texts = [pair.source.encode() for pair in chunk]
                ids = tokenizer.encode_source(tf.constant(texts))
                file.write(ids.flat_values.numpy().tobytes())
                sizes = [len(text) for text in texts]
                index.append(np.stack([ids.row_lengths().numpy(), sizes], axis=1))
        if index:
            np.save(folder / "index.npy", np.concatenate(index).astype("int64"))
        report.require_some(
            "the corpus" if split == "train" else "the validation corpus (--val-text)"
        )
        return cls(folder)


class JoinedBatches(Epochs):
    """The batches of a `JoinedCorpus`: rows of `row_length` tokens, T, with concatenated texts.

    The tokens of a batch do not depend on who computes it: a shard is every `count`th row. The
    other arguments are those of `training.data.batches.Batches`. Of the noise, only `drop_words` is
    used, because ids are prepared once.
    """

    types = (tf.int32,)

    def __init__(
        self, task, corpus, batch_tokens, seed=0, shuffle=True, parts=1, noise=None, *, row_length
    ):
        self.task, self.corpus, self.seed, self.shuffle = task, corpus, seed, shuffle
        self.parts, self.noise, self.row_length = parts, noise, row_length
        self.rows = max(1, batch_tokens // row_length)
        self.buckets = [0]
        self.padded_tokens = corpus.tokens
        self.count = -(-corpus.tokens // (self.rows * row_length))

    def shape(self, bucket=0, count=1):
        """(rows, tokens of a row) of a batch, or of one of its `count` shards."""
        return self.rows_of(self.rows, count), self.row_length

    def stream(self, epoch, skip=0):
        """Yields (ids, labels, texts) of each batch from `skip` on, int32 [n] each: the inputs, the
        next token of each, and the number of its text. The last batch may have fewer tokens."""
        size = self.rows * self.row_length
        before, pieces, held, text = skip * size, [], 0, 0
        for numbers in self.order(epoch):
            for number, length in zip(numbers, self.corpus.index[numbers, TOKENS], strict=True):
                if length <= before:  # the whole text is in a skipped batch
                    before -= length
                    continue
                text, place, before = text + 1, before, 0
                labels = self.corpus.text_ids(number)
                while place < length:
                    end = min(length, place + size - held)
                    ids = labels[place - 1 : end - 1] if place else [BOS, *labels[: end - 1]]
                    own = ids, labels[place:end], [text] * (end - place)
                    pieces.append(np.array(own, "int32"))
                    held, place = held + end - place, end
                    if held == size:
                        yield np.concatenate(pieces, axis=1)
                        pieces, held = [], 0
        if held:
            yield np.concatenate(pieces, axis=1)

    def tokens(self, epoch, skip=0):
        """Yields the number of real tokens of each batch of the epoch from `skip` on."""
        size = self.rows * self.row_length
        for n in range(skip, len(self)):
            yield min(size, self.corpus.tokens - n * size)

    def batches(self, epoch, skip):
        """Yields full batches, int32 [3, rows, T]; the last one is filled with padding."""
        for batch in self.stream(epoch, skip):
            missing = self.rows * self.row_length - batch.shape[1]
            batch = np.pad(batch, [[0, 0], [0, missing]], constant_values=PAD)
            yield batch.reshape(3, self.rows, self.row_length)

    def shard(self, batch, shard, count, epoch):
        own = batch[:, shard::count]
        missing = self.shape(0, count)[0] - own.shape[1]
        own = np.pad(own, [[0, 0], [0, missing], [0, 0]], constant_values=PAD)
        return (own.astype("int32"),)

    @tf.autograph.experimental.do_not_convert
    def element(self, epoch, rows, seed):
        rows, seed = tf.ensure_shape(rows, [3, None, self.row_length]), tf.ensure_shape(seed, [2])
        ids, labels, texts = (tf.tile(one, [self.passes, 1]) for one in tf.unstack(rows))
        if self.noise is not None:
            ids = self.noise.drop_words(ids, seed)
        return self.task.joined(ids, labels, texts, seed)
