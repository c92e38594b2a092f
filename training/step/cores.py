"""Trains on several CPU cores in parallel: each computes a part of every batch in its own thread.

By default, TensorFlow splits every operation among all cores. The operations of a step are too
small for that: multiplying a thousand tokens by a matrix of 128 x 128 takes less time than
distributing the work. So a step has one part for each core, each operation uses one thread, and as
many operations run in parallel. Only the update of the weights waits for all parts.
"""

import tensorflow as tf

from ..recipe.rules import AUTO
from . import machine
from .largest_batch import has_gpu

# Each part is a copy of the graph and has its own gradients, as large as all weights.
MAXIMUM = 8
# Source or target tokens of a part: smaller parts have matrix products that are too small.
MIN_TOKENS = 512


def cores_of(recipe):
    """The number of parts of a batch that a training of this recipe computes in parallel here."""
    if recipe.batch_tokens == AUTO or recipe.strategy == "tpu" or has_gpu():
        return 1
    if recipe.model_changes.get("normalization") == "batch":
        return 1  # its statistics need the whole batch
    if recipe.cores:
        return recipe.cores
    if recipe.strategy != "none":
        return 1
    tokens = recipe.batch_tokens // recipe.accumulate
    # A part has at least one row, however long the row is.
    return max(1, min(machine.cores(), MAXIMUM, tokens // max(MIN_TOKENS, recipe.max_tokens)))


def keep_operations_apart():
    """Stops TensorFlow from fusing a matrix product, its bias and its activation.

    oneDNN computes the fused operation as an inner product, which takes twice as long. The setting
    affects this process only.
    """
    tf.config.optimizer.set_experimental_options({"remapping": False})


def share_threads(parts):
    """Gives each of the `parts` its share of this process's threads, for one operation at a time.

    Returns whether it was in time: TensorFlow must not have computed anything before.
    """
    try:
        tf.config.threading.set_intra_op_parallelism_threads(max(1, machine.cores() // parts))
        tf.config.threading.set_inter_op_parallelism_threads(machine.cores())
    except RuntimeError:
        return False
    return True
