"""The loop of every search: blocks of positions, after which finished sentences leave."""

import tensorflow as tf

from tfformer.search.hypotheses import Hypotheses
from tfformer.search.step import State

# Positions in a block. Each block begins with a copy of the caches. Attention reads up to this many
# empty positions, and a settled sentence waits for up to this many steps.
BLOCK = 16

# A batch is searched in parts, one for each GROUP_SIZE sentences, but from MIN_GROUPS to
# MAX_GROUPS parts. Each uses its own thread if one is free. (The products of a step are too small
# for two threads to share. A part of 16 sentences is as fast as the whole batch, one of 8 a tenth
# slower.) Parts must not run stateful operations: TensorFlow would run these in order.
GROUP_SIZE, MIN_GROUPS, MAX_GROUPS = 16, 2, 16


def search_in_blocks(advance, settled, hypotheses, state):
    """Runs `advance` until every sentence is settled.

    Args:
        advance: a function of (position, hypotheses, state) that returns the hypotheses with one
            more token, and the cache.
        settled: a function of the hypotheses that returns boolean [B]: no further step can change
            the results.
        hypotheses: `Hypotheses` that hold bos or a prompt; `given` has the "limit" of each.
        state: the `State` of the step function; this function adds positions to its cache.

    Returns:
        The `Hypotheses` of all sentences, in their original order.
    """

    def unsettled(position, found, hypotheses, state):
        return tf.size(hypotheses.ids) > 0

    def one_block(position, found, hypotheses, state):
        # 1. Add the positions of this block.
        hypotheses, found = grow(hypotheses), grow(found)
        memory, cache = state.memory, tf.nest.map_structure(grow_cache, state.cache)
        end = position + BLOCK

        # 2. One token after the other.
        def running(position, hypotheses, cache):
            return (position < end) & ~tf.reduce_all(settled(hypotheses))

        def one_step(position, hypotheses, cache):
            hypotheses, cache = advance(position, hypotheses, State(memory, cache))
            return position + 1, hypotheses, cache

        position, hypotheses, cache = loop(running, one_step, (position, hypotheses, cache))

        # 3. Write the hypotheses to the rows of their sentences.
        sentences = hypotheses.given["sentence"][:, None]
        found = tf.nest.map_structure(
            lambda of_all, new: tf.tensor_scatter_nd_update(of_all, sentences, new),
            found,
            hypotheses,
        )
        # 4. Only unsettled sentences continue.
        going_on = tf.where(~settled(hypotheses))[:, 0]
        hypotheses, state = tf.nest.map_structure(
            lambda leaf: tf.gather(leaf, going_on), (hypotheses, State(memory, cache))
        )
        return position, found, hypotheses, state

    def search(hypotheses, state):
        given, first = hypotheses.given, hypotheses.newest
        sentences = tf.range(tf.size(given["row"]))
        hypotheses = hypotheses._replace(given={**given, "sentence": sentences})
        start = (tf.convert_to_tensor(first), hypotheses, hypotheses, state)
        found = loop(unsettled, one_block, start)[1]
        return found._replace(given=given)

    return _in_groups(search, hypotheses, state)


def _in_groups(search, hypotheses, state):
    """Run `search(hypotheses, state)` for all parts of the batch in parallel.

    The parts are iterations of a loop that do not wait for each other.
    """
    size = tf.size(hypotheses.given["row"])
    groups = tf.clip_by_value(size // GROUP_SIZE, MIN_GROUPS, MAX_GROUPS)
    groups = tf.clip_by_value(size, 1, groups)
    longest = tf.reduce_max(tf.concat([hypotheses.given["limit"], [1]], axis=0))
    capacity = hypotheses.newest + 1 + (longest + BLOCK - 1) // BLOCK * BLOCK

    def one_group(group, parts):
        # Every `groups`-th row, so that a batch sorted by length gives each part all lengths.
        rows = tf.range(group, size, groups)
        mine = tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), (hypotheses, state))
        found = search(*mine)
        found = tf.nest.flatten(grow(found, capacity - tf.shape(found.ancestors)[2]))
        return group + 1, [part.write(group, leaf) for part, leaf in zip(parts, found, strict=True)]

    parts = [
        tf.TensorArray(leaf.dtype, groups, infer_shape=False, element_shape=shape)
        for leaf, shape in zip(
            tf.nest.flatten(hypotheses), tf.nest.flatten(_free(hypotheses)), strict=True
        )
    ]
    start, alive = (0, parts), lambda group, parts: group < groups
    _, parts = tf.while_loop(alive, one_group, start, parallel_iterations=MAX_GROUPS)
    found = tf.nest.pack_sequence_as(hypotheses, [part.concat() for part in parts])
    order = tf.argsort(found.given["row"])
    return tf.nest.map_structure(lambda leaf: tf.gather(leaf, order), found)


def loop(condition, body, start):
    """`tf.while_loop` over (position, nests of tensors [B, ...], ...), where B and C may change.

    One iteration at a time, because a cache is written in place.
    """
    shapes = tuple(_free(part) for part in start)
    return tf.while_loop(condition, body, start, shapes, parallel_iterations=1)


def _free(part):
    """The shapes of a loop variable; sizes that may change are None."""

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
            history={name: free(values, 1) for name, values in part.history.items()},
        )
    return tf.nest.map_structure(lambda leaf: free(leaf, *range(1, leaf.shape.rank)), part)


def grow(hypotheses, positions=BLOCK):
    """Adds empty positions to the hypotheses."""
    new, none = [0, positions], [0, 0]
    return hypotheses._replace(
        ancestors=tf.pad(hypotheses.ancestors, [none, none, new], constant_values=-1),  # [B, W, C]
        history={
            name: tf.pad(values, [none, new, none])  # [B, C, W]
            for name, values in hypotheses.history.items()
        },
    )


def grow_cache(leaf, positions=BLOCK):
    """Add empty positions to a cache. The result is a new buffer, which can be written in place."""
    shape = tf.unstack(tf.shape(leaf))
    shape[-2] = positions
    room = tf.zeros(tf.stack(shape), leaf.dtype)
    return tf.concat([leaf, room], axis=-2)
