"""Inference compiled by XLA: a fixed set of shapes, and only operations that XLA can compile.

XLA compiles a function for each new input shape, which takes seconds. So the number of rows in a
batch is padded to a power of two, and its sources to one of a few lengths. With at most 32 rows and
limits of 256 tokens there are 6 x 5 such shapes. Each has an encoder and up to 4 loops of the
search (`tfformer.search.loop_xla`): at most 150 functions, compiled when requests need them.

A stock TensorFlow Serving cannot use this: it disables XLA, on a GPU too, unless it is started with
`--xla_cpu_compilation_enabled`.
"""

import tensorflow as tf

from tfformer.config import PAD
from tfformer.inference.transformer import Inference

SHORTEST_SOURCE = 16


class CompiledInference(Inference):
    """`Inference` with a compiled `memory`, and with a `step` for a compiled loop."""

    def memory(self, source_ids):
        return tf.function(super().memory, jit_compile=True, autograph=False)(source_ids)

    @staticmethod
    def _write(rows, index, new):
        """Write to a cache. XLA cannot compile `InplaceUpdate`, but it compiles this operation to a
        write in place."""
        return tf.tensor_scatter_nd_update(rows, index[:, None], new)


def in_bucket(source_ids, longest):
    """Pad source ids [B, S] to a power of two of rows and to one of a few lengths.

    The lengths are 16, 32, 64, ...; `longest` replaces the first one that reaches it. A row of
    padding is a blank text, which a search skips.
    """
    rows, length = tf.unstack(tf.shape(source_ids))
    bucket = tf.minimum(tf.maximum(_power_of_two(length), SHORTEST_SOURCE), longest)
    missing = [[0, _power_of_two(rows) - rows], [0, bucket - length]]  # of [B, S]
    return tf.pad(source_ids, missing, constant_values=PAD)


def _power_of_two(number):
    """The smallest power of two that is at least `number`, an int32 scalar; at least 1."""
    powers = tf.constant([2**n for n in range(31)])
    return powers[tf.searchsorted(powers, number[None])[0]]
