"""The XLA form of inference: fixed buckets of shapes, of ops that XLA can compile.

XLA compiles a function for each shape that it is called with, which takes seconds. So a batch is
padded to a power of two of rows, and its sources to one of a few lengths. With at most 32 rows and
limits of 256 tokens there are 6 x 5 such buckets, with an encoder and up to 4 loops of the search
(`tfformer.search.loop_xla`) in each: 150 functions at most, compiled as requests need them.

Not for a stock TensorFlow Serving, which switches XLA off unless it is started with
`--xla_cpu_compilation_enabled`, on a GPU too.
"""

import tensorflow as tf

from tfformer.config import PAD
from tfformer.inference.transformer import Inference

SHORTEST_SOURCE = 16


class CompiledInference(Inference):
    """`Inference` whose `memory` is compiled, and whose `step` is for a loop that is."""

    def memory(self, source_ids):
        return tf.function(super().memory, jit_compile=True, autograph=False)(source_ids)

    @staticmethod
    def _write(rows, index, new):
        """XLA compiles no `InplaceUpdate`, and this to a write in place."""
        return tf.tensor_scatter_nd_update(rows, index[:, None], new)


def in_bucket(source_ids, longest):
    """Source ids [B, S], padded to a power of two of rows and to one of a few lengths.

    The lengths are 16, 32, 64, ... and, in place of the first that reaches it, `longest`. A row of
    padding is a blank text, which a search skips.
    """
    rows, length = tf.unstack(tf.shape(source_ids))
    bucket = tf.minimum(tf.maximum(_power_of_two(length), SHORTEST_SOURCE), longest)
    missing = [[0, _power_of_two(rows) - rows], [0, bucket - length]]  # of [B, S]
    return tf.pad(source_ids, missing, constant_values=PAD)


def _power_of_two(number):
    """The least power of two that is not below `number`, an int32 scalar; at least 1."""
    powers = tf.constant([2**n for n in range(31)])
    return powers[tf.searchsorted(powers, number[None])[0]]
