"""Finds the largest batch that fits into a GPU's memory, for `--batch-tokens auto`.

The memory of a step cannot be computed beforehand: it depends on the activations, the compiler and
the libraries. So the search runs steps with twice as many tokens each time until one runs out of
memory. Then it halves the gap until the gap is an eighth. The steps use batches of the longest
bucket, where attention's B x h x S x T is largest, and weights that are discarded afterwards.
"""

import tensorflow as tf

from tfformer.config import EOS

# Minimum steps in an epoch: with fewer, the model learns too little, however fast they are.
MIN_STEPS = 100


def has_gpu():
    """Whether there is a GPU for a single device's training."""
    return bool(tf.config.list_physical_devices("GPU"))


def largest_batch_tokens(step, minimum, maximum):
    """The largest number of tokens in [least, most] whose step fits into memory, to an eighth.

    `step` is a function of a number of tokens that runs a training step of that size. If not even
    `minimum` tokens fit, MemoryError is raised.
    """

    def fits(tokens):
        try:
            step(tokens)
        except tf.errors.ResourceExhaustedError:
            return False
        return True

    if not fits(minimum):
        raise MemoryError(f"the memory is too small for a training step of {minimum} tokens")
    fitting, beyond = minimum, maximum + 1
    while beyond - fitting > max(1, fitting // 8):
        tokens = min(2 * fitting, (fitting + beyond) // 2)
        if fits(tokens):
            fitting = tokens
        else:
            beyond = tokens
    return fitting


def training_step(model, task, edge, passes=1):
    """A function of a number of tokens that runs a step of `model` on rows of `edge` tokens."""

    def step(tokens):
        model.train_on_batch(*task.uniform(passes * max(1, tokens // edge), edge, EOS))

    return step
