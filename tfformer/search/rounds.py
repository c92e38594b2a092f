"""The loop of every search: rounds of a few positions, between which finished sentences leave."""

import tensorflow as tf

from tfformer.search.hypotheses import Hypotheses, State

# Positions in a round. Each begins with a copy of the caches; attention looks at up to as many
# places that are still empty, and a settled sentence waits for up to as many steps.
ROUND = 16


def search_in_rounds(advance, settled, hypotheses, state):
    """Runs `advance` until every sentence is settled.

    Args:
        advance: a function of (position, hypotheses, state) that gives the hypotheses one token
            longer, and the cache.
        settled: a function of the hypotheses that gives boolean [B]: nothing that is still to
            come can change what is returned of them.
        hypotheses: `Hypotheses` that hold bos.
        state: the `State` of the step function; room for positions is made here.

    Returns:
        The `Hypotheses` of all sentences, in the order in which they came.
    """

    def unsettled(position, found, hypotheses, state):
        return tf.size(hypotheses.ids) > 0

    def one_round(position, found, hypotheses, state):
        # 1. Room for the positions of this round.
        hypotheses, found = _grow(hypotheses), _grow(found)
        memory, cache = state.memory, tf.nest.map_structure(_grow_cache, state.cache)
        end = position + ROUND

        # 2. One token after the other.
        def running(position, hypotheses, cache):
            return (position < end) & ~tf.reduce_all(settled(hypotheses))

        def one_step(position, hypotheses, cache):
            hypotheses, cache = advance(position, hypotheses, State(memory, cache))
            return position + 1, hypotheses, cache

        position, hypotheses, cache = _loop(running, one_step, (position, hypotheses, cache))

        # 3. What there is, back to its row.
        rows = hypotheses.given["row"][:, None]
        found = tf.nest.map_structure(
            lambda all_rows, new: tf.tensor_scatter_nd_update(all_rows, rows, new),
            found,
            hypotheses,
        )
        # 4. Only the sentences that are not settled go on.
        going_on = tf.where(~settled(hypotheses))[:, 0]
        hypotheses, state = tf.nest.map_structure(
            lambda leaf: tf.gather(leaf, going_on), (hypotheses, State(memory, cache))
        )
        return position, found, hypotheses, state

    start = (tf.constant(0), hypotheses, hypotheses, state)
    return _loop(unsettled, one_round, start)[1]


def _loop(condition, body, start):
    """`tf.while_loop` over a (position, nests of tensors [B, ...] ...), B and C free.

    One iteration at a time: a cache is written in place.
    """
    shapes = tuple(_free(part) for part in start)
    return tf.while_loop(condition, body, start, shapes, parallel_iterations=1)


def _free(part):
    """The shapes of a loop variable, without the sizes that change."""

    def free(leaf, *axes):
        dims = leaf.shape.as_list()
        for axis in (0, *axes) if dims else ():
            dims[axis] = None
        return tf.TensorShape(dims)

    if isinstance(part, State):
        return State(*(_free(nest) for nest in part))
    if isinstance(part, Hypotheses):
        return tf.nest.map_structure(free, part)._replace(
            ancestors=free(part.ancestors, 2),
            history={name: free(past, 1) for name, past in part.history.items()},
        )
    return tf.nest.map_structure(lambda leaf: free(leaf, *range(1, leaf.shape.rank)), part)


def _grow(hypotheses):
    """Room for the positions of another round."""
    return hypotheses._replace(
        ancestors=tf.pad(hypotheses.ancestors, [[0, 0], [0, 0], [0, ROUND]], constant_values=-1),
        history={
            name: tf.pad(past, [[0, 0], [0, ROUND], [0, 0]])
            for name, past in hypotheses.history.items()
        },
    )


def _grow_cache(leaf):
    """The same in a cache: a buffer of its own, so that it may be written in place.

    (`Empty` is stateful. Two caches of the same zeros would else be found to be one, and share it.)
    """
    shape = tf.unstack(tf.shape(leaf))
    shape[-2] = ROUND
    room = tf.raw_ops.Empty(shape=tf.stack(shape), dtype=leaf.dtype, init=True)
    return tf.concat([leaf, room], axis=-2)
