"""Batches: shuffled, of sentences of like length, of a few fixed shapes, in a replayable order.

The order is a pure function of (seed, epoch), so that a run can go on at batch k of epoch e
exactly where it was. Nothing of it is kept in memory but the batches that are being filled.
"""

import functools
import itertools

import numpy as np
import tensorflow as tf

from tfformer.config import PAD
from training.data.corpus import SOURCE_TOKENS
from training.data.noise import Noise

EDGES = (8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
CHUNK = 65_536
# Nothing of a dataset is AUTOTUNE. And an iterator's destructor waits for the tuning thread, which
# sleeps 10 ms, 20 ms, 40 ms, ... up to a minute: up to that each epoch's end would stall (measured:
# an epoch took 142 s where it takes 105).
NO_AUTOTUNE = tf.data.Options()
NO_AUTOTUNE.autotune.enabled = False


def permuted(positions, size, key):
    """A pseudo-random permutation of range(size), computed at these positions alone.

    A Feistel network (Luby and Rackoff 1988) permutes 0 ... 4^k - 1, the power of four that
    holds `size`; what falls outside the range is sent through it again until it falls inside.

    Args:
        positions: integers in [0, size), [n].
        size: of the range.
        key: a sequence of integers; another key is another permutation.

    Returns:
        int64 [n].
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    round_keys = np.random.default_rng(key).integers(2**63, size=6, dtype=np.uint64)

    def scramble(x):
        left, right = x >> half, x & mask
        for round_key in round_keys:
            left, right = right, left ^ (_hash(right + round_key) & mask)
        return (left << half) | right

    x = scramble(np.asarray(positions, dtype=np.uint64))
    while (outside := x >= size).any():
        x[outside] = scramble(x[outside])
    return x.astype(np.int64)


def _hash(x):
    """64 well-mixed bits of 64 (the finaliser of SplitMix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Batches:
    """The batches of a corpus.

    A pair belongs into the first bucket that holds both its sides; a batch is of one bucket, and
    all batches of a bucket have one shape: `batch_tokens // edge` rows of `edge` tokens a side.
    Rows that the last batch of a bucket cannot fill are padding.

    Which pairs are in a batch does not depend on who computes it: a shard is every `count`th pair
    of each batch, and all shards have one shape too, filled up with padding. Only the texts of the
    shards that are asked for are read.

    Args:
        task: a `Task`, which says what of a batch is input and what is label.
        corpus: a `Corpus`.
        tokenizer: its `Tokenizer`; texts become ids as they are read.
        batch_tokens: tokens a side in a batch, padding counted.
        seed: of the order.
        shuffle: False gives the corpus's own order, as for validation.
        parts: the rows of a batch, or of a shard, are a multiple of it. Default 1.
        packed: elements say where their tokens stand, by the task's `without_padding`. Their
            shapes are then no longer few. Default False.
        noise: a `Noise`, or None (default).
        both_ways: epochs, from the first on, in which about half of the pairs, drawn anew in each,
            are turned round, target to source (Ding et al. 2021, "Improving Neural Machine
            Translation by Bidirectional Training"). Needs one vocabulary for both. Default 0.

    Attributes:
        passes: how often a batch holds its rows, one copy after the other. To be set; 1 at first.
        padded_tokens: a side in an epoch, the padding to the end of each bucket counted.
    """

    def __init__(
        self,
        task,
        corpus,
        tokenizer,
        batch_tokens,
        seed=0,
        shuffle=True,
        parts=1,
        packed=False,
        noise=None,
        both_ways=0,
    ):
        self.task, self.corpus, self.tokenizer = task, corpus, tokenizer
        self.seed, self.shuffle, self.parts = seed, shuffle, parts
        self.packed, self.passes, self.noise = packed, 1, noise or Noise(tokenizer)
        self.both_ways = both_ways
        counts = np.zeros(len(EDGES), "int64")
        for start in range(0, len(corpus), CHUNK):
            counts += np.bincount(self._buckets(slice(start, start + CHUNK)), minlength=len(EDGES))
        self.rows = [max(1, batch_tokens // edge) for edge in EDGES]
        self.buckets = [bucket for bucket, count in enumerate(counts) if count]
        self.padded_tokens = int(counts @ np.array(EDGES))
        self.count = int(sum(-(-n // rows) for n, rows in zip(counts, self.rows, strict=True)))

    def __len__(self):
        """Batches in an epoch: the same in every epoch."""
        return self.count

    def _buckets(self, numbers):
        lengths = self.corpus.index[numbers, SOURCE_TOKENS:].max(axis=1)
        return np.searchsorted(EDGES, lengths)

    def plan(self, epoch):
        """Yields (bucket, the numbers of its pairs) for each batch of the epoch."""
        size = len(self.corpus)
        filling = [[] for _ in EDGES]
        for start in range(0, size, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, size))
            if self.shuffle:
                numbers = permuted(numbers, size, (self.seed, epoch))
            for number, bucket in zip(numbers.tolist(), self._buckets(numbers), strict=True):
                filling[bucket].append(number)
                if len(filling[bucket]) == self.rows[bucket]:
                    yield bucket, filling[bucket]
                    filling[bucket] = []
        for bucket, numbers in enumerate(filling):
            if numbers:
                yield bucket, numbers

    def tokens(self, epoch, skip=0):
        """Yields the real tokens of each batch of the epoch from `skip` on, source + target."""
        for _, numbers in itertools.islice(self.plan(epoch), skip, None):
            yield self.corpus.tokens(numbers)

    def texts(self, numbers, epoch):
        """The texts of these pairs as the epoch has them: a list of sources and one of targets."""
        sources, targets = self.corpus.texts(numbers)
        if epoch < self.both_ways:
            # A pair's bucket is that of its longer side: turned round, it is in the same batch.
            key = np.random.default_rng((self.seed, epoch, 1)).integers(2**63, dtype=np.uint64)
            turned = _hash(np.array(numbers, np.uint64) ^ key) & np.uint64(1)
            for n in np.flatnonzero(turned):
                sources[n], targets[n] = targets[n], sources[n]
        return sources, targets

    def shape(self, bucket, count=1):
        """(rows, tokens a side) of the bucket's batches, or of one of their `count` shards."""
        parts = count * self.parts
        return -(-self.rows[bucket] // parts) * self.parts, EDGES[bucket]

    def dataset(self, epoch=0, skip=0, shards=(0,), count=1):
        """The epoch from batch `skip` on, as a `tf.data.Dataset` of known cardinality.

        An element is (inputs, labels) as the task's `example` gives them, of its `shape`.

        Args:
            epoch: from 0; another one is another order.
            skip: batches left out at the beginning.
            shards: of each batch these, an element each, in this order.
            count: shards that a batch is split into. Default 1: the whole batch.
        """

        batches, bucket, numbers = iter(()), None, ()

        def texts(n):
            nonlocal batches, bucket, numbers
            batch, place = divmod(int(n), len(shards))
            if n == skip * len(shards):
                # A new pass over the dataset begins.
                batches = itertools.islice(self.plan(epoch), skip, None)
            if place == 0:
                bucket, numbers = next(batches)
            sources, targets = self.texts(numbers[shards[place] :: count], epoch)
            size = np.array(self.shape(bucket, count), "int32")
            # Of each shard another noise, however many of them a worker has.
            noise = np.random.default_rng((self.seed, epoch, batch, shards[place]))
            noise_seed = noise.integers(2**32 - 1, size=2)
            return np.array(sources, object), np.array(targets, object), size, noise_seed

        # Not `from_generator`: its length would be unknown, for which `fit` makes a step too many
        # in each epoch; and it makes malloc return memory at once, half as fast again in all.
        types = (tf.string, tf.string, tf.int32, tf.int64)
        dataset = tf.data.Dataset.range(skip * len(shards), len(self) * len(shards))
        dataset = dataset.map(lambda n: tf.numpy_function(texts, [n], types))
        element = functools.partial(self._element, epoch)
        dataset = dataset.map(element, num_parallel_calls=2, deterministic=True).prefetch(4)
        return dataset.with_options(NO_AUTOTUNE)

    @tf.autograph.experimental.do_not_convert
    def _element(self, epoch, sources, targets, size, seed):
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
        inputs, labels = self.task.example(x, y, padded)
        inputs = {
            name: in_passes(self.noise.drop_words(ids, seed + n))
            for n, (name, ids) in enumerate(inputs.items())
        }
        labels = in_passes(labels)
        if not self.packed:
            return inputs, labels
        return self.task.without_padding(inputs, labels, self.passes)
