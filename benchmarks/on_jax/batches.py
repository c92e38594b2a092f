"""Batches for several models that are trained in one step: all have the same shape, but each model
has its own pairs.
"""

import numpy as np

EDGES = np.array([12, 16, 20, 24, 32, 64])


class Batches:
    """A corpus in the orders of several models.

    As in `training.data.batches` a pair is in the first bucket that holds both its sides, in their
    usual segmentation, a batch is of one bucket, and the last of a bucket is filled up: so all
    models have as many batches of each bucket, and each sees every pair once an epoch.

    Args:
        lengths: integers [2, 1 + drawn, N], the tokens of each segmentation of each side, the usual
            one first; at most EDGES[-1].
        batch_tokens: tokens a side in a batch, padding counted.
        seeds: of each model integers of at least 0 that its order is drawn by.

    Attributes:
        rows: {bucket: rows of its batches}, of the buckets that have pairs.
    """

    def __init__(self, lengths, batch_tokens, seeds):
        self.lengths, self.seeds = lengths, seeds
        self.buckets = np.searchsorted(EDGES, lengths[:, 0].max(axis=0))
        used = np.unique(self.buckets).tolist()
        self.rows = {bucket: max(1, batch_tokens // int(EDGES[bucket])) for bucket in used}
        self.order = np.concatenate(
            [
                np.full(-(-np.count_nonzero(self.buckets == bucket) // rows), bucket)
                for bucket, rows in self.rows.items()
            ]
        )

    def __len__(self):
        """Batches in an epoch."""
        return len(self.order)

    def epoch(self, number, drawn):
        """Yields (bucket, int32 [models, rows, 3]) for each batch of an epoch: of each row its pair
        and the segmentations of its source and of its target; a row of padding is of pair -1.

        Args:
            number: of the epoch, from 0.
            drawn: whether segmentations are. One that the bucket does not hold gives way to the
                usual one.
        """
        models = [self._batches(seed, number, drawn) for seed in self.seeds]
        taken = dict.fromkeys(self.rows, 0)
        for bucket in np.random.default_rng(number).permutation(self.order).tolist():
            n, taken[bucket] = taken[bucket], taken[bucket] + 1
            yield bucket, np.stack([batches[bucket][n] for batches in models])

    def _batches(self, seed, number, drawn):
        """{bucket: int32 [batches, rows, 3]} of a model's epoch."""
        rng = np.random.default_rng((*seed, number))
        _, segmentations, pairs = self.lengths.shape
        pick = np.zeros((2, pairs), "int64")
        if drawn and segmentations > 1:
            pick = rng.integers(1, segmentations, size=(2, pairs))
            for side in (0, 1):
                lengths = self.lengths[side, pick[side], np.arange(pairs)]
                pick[side] = np.where(lengths <= EDGES[self.buckets], pick[side], 0)
        order = rng.permutation(pairs)
        index = np.stack([order, *pick[:, order]], axis=-1).astype("int32")
        found = {}
        for bucket, rows in self.rows.items():
            own = index[self.buckets[order] == bucket]
            missing = np.full((-len(own) % rows, 3), [-1, 0, 0], "int32")
            found[bucket] = np.concatenate([own, missing]).reshape(-1, rows, 3)
        return found
