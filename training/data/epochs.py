"""Epochs that can be replayed: of any one, the batches from any one on, as often as asked for.

The order is a pure function of (seed, epoch), so that a run can go on at batch k of epoch e
exactly where it was; and so is what is drawn for each shard of each batch.
"""

import abc
import functools

import numpy as np
import tensorflow as tf

# Numbers of a corpus that are put in order at once.
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
        corpus: what has a length, the numbers of its texts.
        seed: of the order.
        shuffle: False gives the corpus's own order, as for validation.
        parts: the rows of a batch, or of a shard, are a multiple of it.
        passes: how often a batch holds its rows, one copy after the other. To be set; 1 at first.
        count: batches in an epoch: the same in every epoch.
        types: of what `shard` gives, each of its arrays.
    """

    passes, types = 1, ()

    def __len__(self):
        """Batches in an epoch: the same in every epoch."""
        return self.count

    @abc.abstractmethod
    def batches(self, epoch, skip):
        """Yields the batches of the epoch from `skip` on, each as `shard` takes it."""

    @abc.abstractmethod
    def shard(self, batch, shard, count, epoch):
        """One of the `count` shards of a batch: a tuple of arrays."""

    @abc.abstractmethod
    def element(self, epoch, *arrays):
        """(inputs, labels) of a shard, whose last array is the two seeds of its noise, int64 [2].
        Called in the dataset's graph."""

    def order(self, epoch):
        """Yields the numbers of the corpus in the order of the epoch, in arrays."""
        size = len(self.corpus)
        for start in range(0, size, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, size))
            yield permuted(numbers, size, (self.seed, epoch)) if self.shuffle else numbers

    def rows_of(self, rows, count):
        """The rows of one of `count` shards of a batch of so many: a multiple of `parts`."""
        parts = count * self.parts
        return -(-rows // parts) * self.parts

    def dataset(self, epoch=0, skip=0, shards=(0,), count=1):
        """The epoch from batch `skip` on, as a `tf.data.Dataset` of known cardinality.

        An element is (inputs, labels) as the task gives them, of its `shape`.

        Args:
            epoch: from 0; another one is another order.
            skip: batches left out at the beginning.
            shards: of each batch these, an element each, in this order.
            count: shards that a batch is split into. Default 1: the whole batch.
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
            # Of each shard another noise, however many of them a worker has.
            noise = np.random.default_rng((self.seed, epoch, number, shards[place]))
            seeds = noise.integers(2**32 - 1, size=2)
            return *self.shard(batch, shards[place], count, epoch), seeds

        # Not `from_generator`: its length would be unknown, for which `fit` makes a step too many
        # in each epoch; and it makes malloc return memory at once, half as fast again in all.
        types = (*self.types, tf.int64)
        dataset = tf.data.Dataset.range(skip * len(shards), len(self) * len(shards))
        dataset = dataset.map(lambda n: tf.numpy_function(arrays, [n], types))
        element = functools.partial(self.element, epoch)
        dataset = dataset.map(element, num_parallel_calls=2, deterministic=True).prefetch(4)
        return dataset.with_options(NO_AUTOTUNE)
