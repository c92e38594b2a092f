"""The largest batch that a GPU holds: `--batch-tokens auto`.

Nobody can say beforehand what a step takes: the activations, what a compiler makes of them, and
what the libraries set aside. So steps are made, of twice as many tokens each, until one finds no
room; then the gap is halved until it is an eighth. They are made with batches of the longest
bucket, where attention's B x h x S x T is largest, and with weights that are thrown away.
"""

import tensorflow as tf

from tfformer.config import EOS

# Steps of an epoch: fewer teach too little, however fast they are.
LEAST_STEPS = 100


def has_gpu():
    """Whether there is a GPU for a single device's training."""
    return bool(tf.config.list_physical_devices("GPU"))


def largest_batch_tokens(step, least, most):
    """The largest number of tokens in [least, most], to an eighth, of which a step finds room.

    Args:
        step: called with a number of tokens, makes a training step of a batch of that many;
            raises `tf.errors.ResourceExhaustedError` where there is no room.
        least, most: tokens.

    Raises:
        MemoryError: even the least find no room.
    """

    def fits(tokens):
        try:
            step(tokens)
        except tf.errors.ResourceExhaustedError:
            return False
        return True

    if not fits(least):
        raise MemoryError(f"no room for a training step, not even of {least} tokens")
    fitting, beyond = least, most + 1
    while beyond - fitting > max(1, fitting // 8):
        tokens = min(2 * fitting, (fitting + beyond) // 2)
        if fits(tokens):
            fitting = tokens
        else:
            beyond = tokens
    return fitting


def training_step(model, task, edge, passes=1):
    """A function of a number of tokens that makes a step of `model`, of rows of `edge` tokens."""

    def step(tokens):
        rows = passes * max(1, tokens // edge)
        model.train_on_batch(*task.uniform(rows, edge, EOS, model.config))

    return step
