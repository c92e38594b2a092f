"""Batches for several models that are trained in one step: all have the same shape, but each model
has its own pairs.
"""

import numpy as np

EDGES = (12, 16, 20, 24, 32, 64)


class Batches:
    """A corpus in a different order for each of several models.

    As in `training.data.batches`, a pair is in the first bucket that fits source and target in
    their usual segmentation, and a batch belongs to one bucket. The last batch of a bucket is
    filled up. So all models have the same number of batches in each bucket, and each model sees
    every pair once per epoch.

    Args:
        lengths: integers [2, 1 + drawn, N], the numbers of tokens of source and target in each
            segmentation, the usual one first; at most edges[-1].
        batch_tokens: source or target tokens in a batch, padding included.
        seeds: for each model, integers of at least 0 for its order.
        edges: the maximum length of each bucket, in ascending order. Default: `EDGES`.

    Attributes:
        rows: {bucket: rows of its batches}, for the buckets that have pairs.
    """

    def __init__(self, lengths, batch_tokens, seeds, edges=EDGES):
        self.lengths, self.seeds, self.edges = lengths, seeds, np.array(edges)
        self.buckets = np.searchsorted(self.edges, lengths[:, 0].max(axis=0))
        used = np.unique(self.buckets).tolist()
        self.rows = {bucket: max(1, batch_tokens // int(self.edges[bucket])) for bucket in used}
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
        """Yields (bucket, int32 [models, rows, 3]) for each batch of an epoch.

        A row has the number of its pair and of the segmentations of source and target. In a row of
        padding, the pair is -1.

        Args:
            number: the number of the epoch, from 0.
            drawn: whether segmentations are random. If one does not fit into the bucket, the usual
                one is used.
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
                pick[side] = np.where(lengths <= self.edges[self.buckets], pick[side], 0)
        order = rng.permutation(pairs)
        index = np.stack([order, *pick[:, order]], axis=-1).astype("int32")
        found = {}
        for bucket, rows in self.rows.items():
            own = index[self.buckets[order] == bucket]
            missing = np.full((-len(own) % rows, 3), [-1, 0, 0], "int32")
            found[bucket] = np.concatenate([own, missing]).reshape(-1, rows, 3)
        return found
