"""The search loop for XLA: few shapes, each twice as long as the one before.

XLA compiles a function again for each new shape, and shapes in its loop cannot change. So the loop
starts with 32 positions, then has 64, 128, 256 and so on. One compiled loop fills each size, and
ordinary operations double it afterwards. Sentences stay in the batch until the search ends. A loop
ends as soon as all of them are settled.
"""

import tensorflow as tf

from tfformer.search.loop import grow, grow_cache, loop
from tfformer.search.step import State

FIRST_ROOM = 32  # positions


def search_by_doubling(advance, settled, hypotheses, state):
    """Runs `advance` until every sentence is settled.

    For each batch size and memory size, XLA compiles at most 1 + ceil(log2(longest / 32))
    functions, where `longest` is the maximum of the "limit" values and 32.

    Args:
        advance, settled, hypotheses, state: as in `search_in_blocks`; XLA must be able to compile
            the functions.

    Returns:
        The `Hypotheses` of all sentences.
    """

    def unsettled(position, hypotheses, state):
        return ~tf.reduce_all(settled(hypotheses))

    def fill_room(position, hypotheses, state):
        # 1. Double the number of positions.
        positions = tf.maximum(position, FIRST_ROOM)
        hypotheses = grow(hypotheses, positions)
        cache = tf.nest.map_structure(lambda leaf: grow_cache(leaf, positions), state.cache)
        # 2. One token after the other.
        position, hypotheses, cache = to_the_end(position, hypotheses, State(state.memory, cache))
        return position, hypotheses, State(state.memory, cache)

    @tf.function(jit_compile=True, autograph=False)
    def to_the_end(position, hypotheses, state):
        # One loop and no other: TensorFlow 2.21 fails to compile several in one function.
        end = tf.shape(hypotheses.ancestors)[2] - 1

        def running(position, hypotheses, cache):
            return (position < end) & ~tf.reduce_all(settled(hypotheses))

        def one_step(position, hypotheses, cache):
            hypotheses, cache = advance(position, hypotheses, State(state.memory, cache))
            return position + 1, hypotheses, cache

        return loop(running, one_step, (position, hypotheses, state.cache))

    return loop(unsettled, fill_room, (tf.convert_to_tensor(hypotheses.newest), hypotheses, state))[
        1
    ]
