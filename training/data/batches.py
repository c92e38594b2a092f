"""Makes shuffled batches of sentences of similar length, in few shapes and a replayable order.

Memory only holds the batches that are being filled, not the order.
"""

import itertools

import numpy as np
import tensorflow as tf

from tfformer.config import PAD

from .corpus import TOKENS
from .epochs import CHUNK, Epochs, mixed
from .links import Links
from .noise import Noise

EDGES = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class Batches(Epochs):
    """The batches of a corpus.

    A pair belongs to the first bucket that is long enough for its source and target. A batch has
    pairs of one bucket, and all batches of a bucket have one shape: `batch_tokens // edge` rows of
    `edge` source and `edge` target tokens. The last batch of a bucket is filled with rows of
    padding.

    The pairs of a batch do not depend on who computes it. A shard is every `count`th pair of each
    batch; all shards also have one shape, filled with padding. Only the texts of the requested
    shards are read.

    Args:
        task: a `Task`, which defines the inputs and labels of a batch.
        batch_tokens: source tokens, and target tokens, in a batch, with padding.
        seed, shuffle, parts: see `Epochs`.
        packed: elements are packed by the task's `without_padding`. There are then many shapes.
        noise: a `Noise`, or None.
        both_ways: number of epochs, from the first, in which about half of the pairs, chosen anew
            in each, swap source and target (Ding et al. 2021, "Improving Neural Machine
            Translation by Bidirectional Training"). Needs a shared vocabulary.
        linked: the inputs also have the result of `Links.inputs`. Such pairs cannot be swapped.

    Attributes:
        passes: see `Epochs`.
        padded_tokens: source tokens, and target tokens, of an epoch, with the padding to the length
            of each bucket.
    """

    types = (tf.string, tf.string, tf.int32)

    def __init__(
        self, task, corpus, tokenizer, batch_tokens, seed=0, shuffle=True, parts=1, packed=False,
        noise=None, both_ways=0, linked=False,
    ):  # fmt: skip
        self.task, self.corpus, self.tokenizer = task, corpus, tokenizer
        self.seed, self.shuffle, self.parts = seed, shuffle, parts
        self.packed, self.noise = packed, noise or Noise(tokenizer)
        self.both_ways = both_ways
        self.links = Links(tokenizer) if linked else None
        if linked:
            if both_ways:
                raise ValueError(f"both_ways must be 0 with alignments, got {both_ways}")
            self.types = (tf.string, *Batches.types)
        counts = np.zeros(len(EDGES), "int64")
        for start in range(0, len(corpus), CHUNK):
            counts += np.bincount(self._buckets(slice(start, start + CHUNK)), minlength=len(EDGES))
        self.rows = [max(1, batch_tokens // edge) for edge in EDGES]
        self.buckets = [bucket for bucket, count in enumerate(counts) if count]
        self.padded_tokens = int(counts @ np.array(EDGES))
        self.count = int(sum(-(-n // rows) for n, rows in zip(counts, self.rows, strict=True)))

    def _buckets(self, numbers):
        lengths = self.corpus.index[numbers, TOKENS].max(axis=1)
        return np.searchsorted(EDGES, lengths)

    def plan(self, epoch):
        """Yields (bucket, the numbers of its pairs) for each batch of the epoch."""
        filling = [[] for _ in EDGES]
        for numbers in self.order(epoch):
            for number, bucket in zip(numbers.tolist(), self._buckets(numbers), strict=True):
                filling[bucket].append(number)
                if len(filling[bucket]) == self.rows[bucket]:
                    yield bucket, filling[bucket]
                    filling[bucket] = []
        for bucket, numbers in enumerate(filling):
            if numbers:
                yield bucket, numbers

    def tokens(self, epoch, skip=0):
        """Yields the number of real tokens of each batch from `skip` on, source + target."""
        for _, numbers in itertools.islice(self.plan(epoch), skip, None):
            yield self.corpus.tokens(numbers)

    def texts(self, numbers, epoch):
        """The texts of these pairs in this epoch: a list of sources and a list of targets."""
        sources, targets = self.corpus.texts(numbers)
        if epoch < self.both_ways:
            # The bucket depends on the longer of source and target, so a swapped pair stays in its
            # batch.
            key = np.random.default_rng((self.seed, epoch, 1)).integers(2**63, dtype=np.uint64)
            turned = mixed(np.array(numbers, np.uint64) ^ key) & np.uint64(1)
            for n in np.flatnonzero(turned):
                sources[n], targets[n] = targets[n], sources[n]
        return sources, targets

    def shape(self, bucket, count=1):
        """(rows, tokens of source or target) of a bucket's batches, or of one of `count` shards."""
        return self.rows_of(self.rows[bucket], count), EDGES[bucket]

    def batches(self, epoch, skip):
        return itertools.islice(self.plan(epoch), skip, None)

    def shard(self, batch, shard, count, epoch):
        bucket, numbers = batch
        sources, targets = self.texts(numbers[shard::count], epoch)
        size = np.array(self.shape(bucket, count), "int32")
        texts = [np.array(texts, object) for texts in (sources, targets)]
        if self.links:
            texts.insert(0, np.array(self.corpus.links(numbers[shard::count]), object))
        return *texts, size

    @tf.autograph.experimental.do_not_convert
    def element(self, epoch, *arrays):
        *links, sources, targets, size, seed = arrays
        sources, targets = tf.ensure_shape(sources, [None]), tf.ensure_shape(targets, [None])
        seed, longest = tf.ensure_shape(seed, [2]), size[1]

        def padded(ids, columns=longest):
            dense = ids.to_tensor(PAD)
            missing = tf.stack([size[0], columns]) - tf.shape(dense)
            padded = tf.pad(dense, [[0, missing[0]], [0, missing[1]]], constant_values=PAD)
            return tf.ensure_shape(padded, [None, None])

        def in_passes(ids):
            return tf.tile(ids, [self.passes, 1])

        x = self.noise.encode_source(sources, longest, seed, epoch)
        y = self.noise.encode_target(targets, longest, seed, epoch)
        inputs, labels = self.task.example(x, y, padded, seed)
        inputs = {
            name: in_passes(self.noise.drop_words(ids, seed + n))
            for n, (name, ids) in enumerate(inputs.items())
        }
        if self.links:
            found = self.links.inputs(x, y, tf.ensure_shape(links[0], [None]), padded)
            inputs |= {name: in_passes(ids) for name, ids in found.items()}
        labels = in_passes(labels)
        if not self.packed:
            return inputs, labels
        return self.task.without_padding(inputs, labels, self.passes)
