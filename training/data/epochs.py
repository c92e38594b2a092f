"""Epochs that can be replayed: the batches of any epoch, from any batch on, any number of times.

The order is a pure function of (seed, epoch), and so are the random choices for each shard of each
batch. So a run can resume exactly at batch k of epoch e.
"""

import abc
import functools

import numpy as np
import tensorflow as tf

# Pairs whose order is computed together.
CHUNK = 65_536
# No part of a dataset uses AUTOTUNE. An iterator's destructor also waits for the tuning thread,
# which sleeps 10 ms, 20 ms, 40 ms, ... up to a minute. The end of each epoch would wait as long
# (measured: an epoch took 142 s instead of 105).
NO_AUTOTUNE = tf.data.Options()
NO_AUTOTUNE.autotune.enabled = False


def permuted(positions, size, key):
    """A pseudo-random permutation of range(size), computed only at these positions: int64 [n].

    A Feistel network (Luby and Rackoff 1988) permutes 0 ... 4^k - 1, where 4^k is the first power
    of four that is at least `size`. A result outside the range is permuted again until it is
    inside. Another `key`, a sequence of integers, gives another permutation.
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    round_keys = np.random.default_rng(key).integers(2**63, size=6, dtype=np.uint64)

    def scramble(x):
        left, right = x >> half, x & mask
        for round_key in round_keys:
            left, right = right, left ^ (mixed(right + round_key) & mask)
        return (left << half) | right

    x = scramble(np.asarray(positions, dtype=np.uint64))
    while (outside := x >= size).any():
        x[outside] = scramble(x[outside])
    return x.astype(np.int64)


def mixed(x):
    """64 well-mixed bits of 64 (the finaliser of SplitMix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Epochs(abc.ABC):
    """The batches of a corpus, epoch by epoch. A subclass sets the attributes.

    Attributes:
        corpus: an object with a length, the number of its texts.
        seed: the seed of the order.
        shuffle: False keeps the corpus's own order, for example for validation.
        parts: the number of rows of a batch, or of a shard, is a multiple of it.
        passes: number of copies of its rows in a batch, one copy after another. It can be set;
            initially 1.
        count: batches in an epoch: the same in every epoch.
        types: the types of the arrays that `shard` returns.
    """

    passes, types = 1, ()

    def __len__(self):
        """Batches in an epoch: the same in every epoch."""
        return self.count

    @abc.abstractmethod
    def batches(self, epoch, skip):
        """Yields the batches of the epoch from `skip` on, each in the form that `shard` takes."""

    @abc.abstractmethod
    def shard(self, batch, shard, count, epoch):
        """One of the `count` shards of a batch: a tuple of arrays."""

    @abc.abstractmethod
    def element(self, epoch, *arrays):
        """(inputs, labels) of a shard. Its last array holds the two seeds of its noise, int64 [2].
        Called in the dataset's graph."""

    def order(self, epoch):
        """Yields arrays with the numbers of the corpus's texts in the order of the epoch."""
        size = len(self.corpus)
        for start in range(0, size, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, size))
            yield permuted(numbers, size, (self.seed, epoch)) if self.shuffle else numbers

    def rows_of(self, rows, count):
        """The rows of one of `count` shards of a batch with `rows` rows: a multiple of `parts`."""
        parts = count * self.parts
        return -(-rows // parts) * self.parts

    def dataset(self, epoch=0, skip=0, shards=(0,), count=1):
        """The epoch from batch `skip` on, as a `tf.data.Dataset` of known cardinality.

        An element is (inputs, labels) from the task, with the batch's `shape`. Each batch is split
        into `count` shards, of which `shards` are returned, one element each, in this order.
        """
        batches, batch = iter(()), None

        def arrays(n):
            nonlocal batches, batch
            number, place = divmod(int(n), len(shards))
            if n == skip * len(shards):
                # A new pass over the dataset begins.
                batches = self.batches(epoch, skip)
            if place == 0:
                batch = next(batches)
            # Each shard has its own noise, however many shards a worker has.
            noise = np.random.default_rng((self.seed, epoch, number, shards[place]))
            seeds = noise.integers(2**32 - 1, size=2)
            return *self.shard(batch, shards[place], count, epoch), seeds

        # Not `from_generator`: its length would be unknown, so `fit` would run one step too many in
        # each epoch. It also makes malloc return memory at once; without it, training is 1.5
        # times as fast.
        types = (*self.types, tf.int64)
        dataset = tf.data.Dataset.range(skip * len(shards), len(self) * len(shards))
        dataset = dataset.map(lambda n: tf.numpy_function(arrays, [n], types))
        element = functools.partial(self.element, epoch)
        dataset = dataset.map(element, num_parallel_calls=2, deterministic=True).prefetch(4)
        return dataset.with_options(NO_AUTOTUNE)
