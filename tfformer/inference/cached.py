"""The forward pass of a decoder that predicts one token after the other, with a cache."""

import abc

import tensorflow as tf

from tfformer.config import PAD
from tfformer.inference.low_latency import as_tensors
from tfformer.inference.masks import attention_bias, causal_bias
from tfformer.search.step import State, StepResult


class Cached(abc.ABC):
    """Base class of the forward passes of encoder-decoder and language model. It provides what
    `tfformer.search` requires of a model.

    Args:
        inference_layer, weights: from `fuse`; the weights may be tensors or variables. The layer
            has `decoder`, `output`, `vocabulary_size`, `dtype`, and `written`, the `Embedded` of
            the target.
    """

    def __init__(self, inference_layer, weights):
        self.inference_layer = inference_layer
        self.weights = as_tensors(weights)
        self.vocabulary_size = inference_layer.vocabulary_size

    @abc.abstractmethod
    def _through(self, x, batch, length, attend, memory):
        """Run rows [B * T, D] through the layers: rows, and the attention [B, T, S] or None.

        Args:
            attend: the self-attention of the target, a function of queries, keys, values
                [B, H, T, K] and the layer's number that returns rows.
            memory: that of the `State`.
        """

    # All positions at once.

    def decode(self, target_ids, memory):
        """target_ids [B, T] -> logits float32 [B, T, V], and the last layer's cross-attention
        weights, averaged over the heads, float32 [B, T, S]; None without a source."""
        x, attention = self._decode(target_ids, memory)
        shape = tf.concat([tf.shape(target_ids), [self.vocabulary_size]], axis=0)
        logits = self.logits_of([x, *self._seen(attention, memory)])
        return tf.reshape(logits, shape), attention  # [B, T, V]

    def _seen(self, attention, memory):
        """The inputs of the output layer besides the states: none; or for a layer that copies, the
        attention [B, T, S] as rows, float32 [R, S], and the source ids, [R, S]."""
        if not self.inference_layer.output.reads_source:
            return ()
        ids = tf.broadcast_to(memory["source_ids"][:, None], tf.shape(attention))  # [B, T, S]
        shape = [-1, tf.shape(attention)[2]]
        return tf.reshape(attention, shape), tf.reshape(ids, shape)  # [B * T, S] each

    def rows(self, target_ids, memory):
        """The inputs of the output layer at all positions of target_ids [B, T], a list of rows:
        first the states, [B * T, D], then those of `_seen`."""
        x, attention = self._decode(target_ids, memory)
        return [x, *self._seen(attention, memory)]

    def logits_of(self, rows):
        """Logits float32 [R, V] from some of the rows of `rows`."""
        return self.inference_layer.output(self.weights, *rows)

    def log_probs(self, target_ids, labels, memory, block=1024):
        """log P(label) at all positions of target_ids [B, T], float32 [B, T]. Only the logits of
        `block` positions exist at a time."""
        return label_log_probs(self.rows(target_ids, memory), labels, self.logits_of, block)

    def _decode(self, target_ids, memory, caches=None):
        """Compute all positions at once, up to the output layer: rows [B * T, D] and attention.

        `caches` is a list that receives the keys and values [B, G, T, K] of each layer.
        """
        batch, length = tf.unstack(tf.shape(target_ids))
        bias = causal_bias(target_ids, length)  # [B, 1, T, T]
        x = self.inference_layer.written(self.weights, target_ids, memory.get("padding"))

        def attend(queries, keys, values, n):
            attention = self.inference_layer.decoder.layers[n].self_attention
            known = queries, keys, values, bias
            return attention.attend(self.weights, *known, causal=True, caches=caches)

        return self._through(x, batch, length, attend, memory)

    # One position at a time.

    def caches(self, batch, width, before=0):
        """The caches of a search with W = `width` beams, before the first step. `before` is the
        number of caches that other models in the same search have."""
        heads = self.inference_layer.decoder.heads
        shape = tf.stack([batch, heads.key_value_heads, 1, width * heads.head_size])

        def cache(number):
            """Make a separate buffer: a graph would merge two tensors with equal numbers. Its
            first content is overwritten before it is read."""
            return tf.fill(shape, tf.cast(number, self.inference_layer.dtype))

        num_layers = len(self.inference_layer.decoder.layers)
        numbers = range(before, before + 2 * num_layers, 2)
        return [(cache(number), cache(number + 1)) for number in numbers]

    def prefill(self, prompt, width, state=None):
        """The `State` after a prompt, int32 [B, P], padded on the left. One pass computes the keys
        and values of all its tokens but the last, in the first of W beams.

        The memory also gets `padding`, int32 [B], the number of padding positions in each row. With
        a source, `state` comes from `start`.
        """
        padding = tf.reduce_sum(tf.cast(prompt == PAD, tf.int32), axis=1)
        known = {} if state is None else state.memory
        memory, caches = {**known, "padding": padding}, []
        self._decode(prompt[:, :-1], memory, caches)

        def in_first_beam(rows):  # [B, G, P - 1, K] -> [B, G, P, W * K]
            others = (width - 1) * self.inference_layer.decoder.heads.head_size
            return tf.pad(rows, [[0, 0], [0, 0], [0, 1], [0, others]])

        return State(memory, tf.nest.map_structure(in_first_beam, caches))

    def step(self, ids, position, visible, state):
        """The step function of `tfformer.search`. Its cache is [B, G, C, W * K] for the keys and
        for the values of each layer. A position is one slice for all beams.
        """
        batch, width = tf.shape(ids)[0], ids.shape[1] or tf.shape(ids)[1]
        layout = CacheLayout(
            self.inference_layer.decoder.heads, batch, width, tf.shape(visible)[2], position
        )
        bias = attention_bias(visible)  # [B, W, C, W]
        bias = tf.reshape(bias, layout.of_bias)  # [B, 1, W, C * W]
        ids = tf.reshape(self.vocabulary_ids(ids), [-1])  # [B * W]
        written = self.inference_layer.written
        positions = written.positions.table(self.weights)
        if "padding" in state.memory:
            positions = tf.gather(positions, position - state.memory["padding"])  # [B, D]
            positions = tf.repeat(positions, width, axis=0)  # [B * W, D]
        else:
            positions = positions[position]
        x = written.at(self.weights, ids, positions)
        caches = []

        def attend(queries, keys, values, n):
            attention = self.inference_layer.decoder.layers[n].self_attention
            places, heads, seen = attention.places, attention.heads, bias
            if places is not None:
                queries, keys = (places.turned(self.weights, x, position) for x in (queries, keys))
                now = tf.convert_to_tensor(position)[None]  # [1]
                seen = places.added(self.weights, bias, now, layout.positions, causal=True)
            kept = [
                layout.write(cache, new, self._write)
                for cache, new in zip(state.cache[n], (keys, values), strict=True)
            ]
            cache = tuple(tf.reshape(rows, layout.of_cache) for rows in kept)  # [B, G, C, W K]
            caches.append(cache)
            keys, values = (tf.reshape(rows, layout.of_keys) for rows in kept)  # [B, G, C W, K]
            # k q^T instead of q k^T: there are many keys and few queries, and the product of the
            # longer matrix with the shorter one takes a third of the time.
            queries = heads.grouped(queries)  # [B, G, H / G * W, K]
            scores = heads.product(keys, queries, transpose_b=True)  # [B, G, C * W, H / G * W]
            scores = heads.ungrouped(heads.transposed(scores, [0, 1, 3, 2]))  # [B, H, W, C * W]
            weights = heads.softmax(tf.cast(scores, tf.float32) + seen)  # [B, H, W, C * W]
            return heads.mixed(weights, values)

        x, attention = self._through(x, batch, width, attend, state.memory)
        logits = self._step_logits(x, attention, batch, width, state.memory)
        return StepResult(logits, caches, attention)

    def vocabulary_ids(self, ids):
        """Convert ids of a search to ids of the vocabulary; they differ only with a shortlist."""
        return ids

    def _step_logits(self, x, attention, batch, width, memory):
        """Rows [B * W, D] and their attention [B, W, S] -> float32 [B, W, V], or fewer columns with
        a shortlist."""
        logits = self.logits_of([x, *self._seen(attention, memory)])
        return tf.reshape(logits, tf.stack([batch, width, self.vocabulary_size]))  # [B, W, V]

    @staticmethod
    def _write(rows, index, new):
        """Write `new` to the rows at `index`, in place. `tensor_scatter_nd_update` would copy all
        rows."""
        return tf.raw_ops.InplaceUpdate(x=rows, i=index, v=new)


def label_log_probs(rows, labels, logits, block):
    """log P(label) at all positions, labels [B, T] -> float32 [B, T].

    Args:
        rows: a nest of tensors [B * T, ...], from which logits are computed.
        labels: int32 [B, T].
        logits: a function of some of the rows that returns their logits, float32 [R, V].
        block: positions computed at a time; all logits [B, T, V] would need gigabytes.
    """
    count = tf.size(labels)
    block = tf.clip_by_value(count, 1, block)
    blocks = tf.maximum(1, (count + block - 1) // block)
    missing = blocks * block - count

    def in_blocks(rows):
        rows = tf.pad(rows, [[0, missing], [0, 0]])
        size = rows.shape[1] or tf.shape(rows)[1]
        return tf.reshape(rows, [blocks, block, size])  # [N, block, ...]

    padded = tf.pad(tf.reshape(labels, [-1]), [[0, missing]])  # [B * T + missing]
    padded = tf.reshape(padded, [blocks, block])  # [N, block]

    def log_probs(one):
        rows, labels = one
        found = logits(rows)
        return tf.gather(found, labels, batch_dims=1) - tf.reduce_logsumexp(found, axis=-1)

    found = tf.map_fn(
        log_probs,
        (tf.nest.map_structure(in_blocks, rows), padded),
        parallel_iterations=1,
        fn_output_signature=tf.float32,
    )
    found = tf.reshape(found, [-1])[:count]  # [B * T]
    return tf.reshape(found, tf.shape(labels))  # [B, T]


class CacheLayout:
    """The layout of a cache [B, G, C, W * K]: C positions, each with the K numbers of W beams.

    Args:
        heads: the `Heads` of the attention.
        batch, width, capacity: B, W, C.
        position: the one that a step writes.

    Attributes:
        of_cache: [B, G, C, W * K].
        of_keys: [B, G, C * W, K], the shape for attention.
        of_bias: [B, 1, W, C * W], the shape of the bias of the scores.
    """

    def __init__(self, heads, batch, width, capacity, position):
        self.row, self.width, self.capacity = width * heads.head_size, width, capacity
        count = heads.key_value_heads
        # The index of the position for each head and sentence, in rows [B * G * C, W * K].
        self.index = tf.range(batch * count) * capacity + position
        self.of_cache = tf.stack([batch, count, capacity, self.row])
        self.of_keys = tf.stack([batch, count, capacity * width, heads.head_size])
        self.of_bias = tf.stack([batch, 1, width, capacity * width])

    @property
    def positions(self):
        """The position of each key, int32 [C * W]."""
        return tf.repeat(tf.range(self.capacity), self.width)  # [C * W]

    def write(self, cache, new, write):
        """Write `new` [B, G, W, K] to a cache at the position: rows [B * G * C, W * K]."""
        rows = tf.reshape(cache, [-1, self.row])  # [B * G * C, W * K]
        return write(rows, self.index, tf.reshape(new, [-1, self.row]))  # new: [B * G, W * K]
