"""The cores of a CPU side by side: each computes a part of every batch, in a thread of its own.

TensorFlow shares every operation among all cores. Those of a step are too small for that: a
thousand tokens by a matrix of 128 x 128 are computed sooner than handed out. So a step has as many
parts as there are cores, an operation one thread, and as many operations run at once. Only the
update of the weights waits for all parts.
"""

import contextlib

import tensorflow as tf

from training import machine
from training.budget import has_gpu
from training.recipe import AUTO

# More would cost more than they gain: each part has gradients of its own, all weights large, and
# few tokens make small products.
MOST = 16
LEAST_TOKENS = 512


def cores_of(recipe):
    """In how many parts a training of this recipe computes a batch side by side on this machine.

    Where that is left open: one on a GPU, a TPU or several devices, which have other ways.
    """
    if recipe.cores:
        return recipe.cores
    if recipe.strategy != "none" or has_gpu() or recipe.batch_tokens == AUTO:
        return 1
    return max(1, min(machine.cores(), MOST, recipe.batch_tokens // LEAST_TOKENS))


def one_thread_each():
    """An operation gets one thread from now on, and as many run at once as there are cores.

    To be called before TensorFlow computes anything; otherwise it keeps the threads that it has:
    then the parts are computed more slowly, and to the same result.
    """
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(machine.cores())
