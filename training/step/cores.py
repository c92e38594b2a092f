"""The cores of a CPU side by side: each computes a part of every batch, in a thread of its own.

TensorFlow shares every operation among all cores. Those of a step are too small for that: a
thousand tokens by a matrix of 128 x 128 are computed sooner than handed out. So a step has as many
parts as there are cores, an operation one thread, and as many operations run at once. Only the
update of the weights waits for all parts.
"""

import tensorflow as tf

from training.recipe.rules import AUTO
from training.step import machine
from training.step.budget import has_gpu

# Each part is a copy of the graph and has gradients of its own, which are as large as all weights.
MOST = 8
# Of one side: smaller parts make small products.
LEAST_TOKENS = 512


def cores_of(recipe):
    """In how many parts a training of this recipe computes a batch side by side on this machine.

    A GPU and a TPU compute it whole. Several devices share it already; there it is as many as the
    recipe says, or one.
    """
    if recipe.batch_tokens == AUTO or recipe.strategy == "tpu" or has_gpu():
        return 1
    if recipe.model_changes.get("normalization") == "batch":
        return 1  # its statistics are of the whole batch
    if recipe.cores:
        return recipe.cores
    if recipe.strategy != "none":
        return 1
    tokens = recipe.batch_tokens // recipe.accumulate
    # A part has a row at least, however long it is.
    return max(1, min(machine.cores(), MOST, tokens // max(LEAST_TOKENS, recipe.max_tokens)))


def keep_operations_apart():
    """From here on, TensorFlow makes no one operation of a product, its bias and its activation.

    oneDNN computes the one as an inner product, which takes twice as long as its matrix product.
    That is for this process: the translations of a validation are computed so too, those of
    another command or of a server are not.
    """
    tf.config.optimizer.set_experimental_options({"remapping": False})


def share_threads(parts):
    """Gives each of so many parts its share of this process's threads, for one operation at a time.

    To be called before TensorFlow computes anything; afterwards it keeps the threads that it has.

    Returns:
        Whether it was in time.
    """
    try:
        tf.config.threading.set_intra_op_parallelism_threads(max(1, machine.cores() // parts))
        tf.config.threading.set_inter_op_parallelism_threads(machine.cores())
    except RuntimeError:
        return False
    return True
