"""What the wrapped models of KerasHub share: their caches, and the ids of a search around them.

The models are told apart by the names of their classes: nothing of KerasHub is imported.
"""

import contextlib
import threading
from typing import NamedTuple

import keras
import tensorflow as tf


class CacheSize(NamedTuple):
    """N layers of H heads of K numbers, each of keys and of values.

    A model has a cache [B, N, 2, T, H, K] of one hypothesis a row. A search has one of all W of a
    sentence, [B, C, W * F]: at each of C positions the F numbers of every beam.
    """

    num_layers: int
    num_heads: int
    head_size: int

    @property
    def numbers(self):
        """F, of one position of one beam."""
        return self.num_layers * 2 * self.num_heads * self.head_size

    def empty(self, batch, length, dtype):
        """A model's cache of T = `length` positions, zeros."""
        shape = [batch, self.num_layers, 2, length, self.num_heads, self.head_size]
        return tf.zeros(tf.stack(shape), dtype)

    def past(self, cache, visible):
        """A model's cache [B * W, N, 2, C, H, K] of the past of each hypothesis, from the beams
        that its ancestors were in: `visible` is boolean [B, W, C, W], as a step gets it."""
        batch, width, capacity, _ = tf.unstack(tf.shape(visible))
        beams = tf.argmax(tf.cast(visible, tf.int32), axis=-1, output_type=tf.int32)  # [B, W, C]
        places = tf.range(capacity) * width + beams
        shape = [batch, capacity * width, self.numbers]
        past = tf.reshape(cache, tf.stack(shape))  # [B, C * W, F]
        past = tf.gather(past, places, batch_dims=1)  # [B, W, C, F]
        shape = [batch * width, capacity, self.num_layers, 2, self.num_heads, self.head_size]
        past = tf.reshape(past, tf.stack(shape))  # [B * W, C, N, 2, H, K]
        return tf.transpose(past, [0, 2, 3, 1, 4, 5])  # [B * W, N, 2, C, H, K]

    def written(self, cache, new, position):
        """A search's cache, in which `new` [B * W, N, 2, H, K] is at a position; it is written in
        place."""
        batch, capacity, row = tf.unstack(tf.shape(cache))
        cache = tf.raw_ops.InplaceUpdate(
            x=tf.reshape(cache, tf.stack([batch * capacity, row])),  # [B * C, W * F]
            i=tf.range(batch) * capacity + position,
            v=tf.reshape(new, tf.stack([batch, row])),  # [B, W * F]
        )
        return tf.reshape(cache, tf.stack([batch, capacity, row]))  # [B, C, W * F]


def kind_of(model, kinds, unk=None):
    """What a model of KerasHub is here.

    Args:
        model: of one of the kinds, or of a subclass, with its preprocessor.
        kinds: {the name of a class: a function of a model and of `unk`}
        unk: the id of what its vocabulary does not have, or None.

    Raises:
        ValueError: it is of none, or has no preprocessor.
    """
    for cls in type(model).__mro__:
        if cls.__name__ in kinds:
            if getattr(model, "preprocessor", None) is None:
                raise ValueError(f"model must have its preprocessor, got a {cls.__name__} without")
            return kinds[cls.__name__](model, unk)
    raise ValueError(
        f"model must be one of {', '.join(kinds)} of KerasHub, got {type(model).__name__}"
    )


class Wrapped:
    """The forward pass of a model of KerasHub, over its own layers and their caches.

    It searches in ids of which 0 to 3 are pad, unk, bos and eos, and 4 + n the model's n. A step
    copies the past of each hypothesis into a cache as the model has it: its attention knows no
    ancestors.

    Args:
        kind: from `kind_of`.
    """

    def __init__(self, kind):
        self.kind, self.special_ids = kind, kind.special_ids

    def vocabulary_ids(self, ids):
        """The ids of a search as ids of the vocabulary: the same."""
        return ids

    def _to_search(self, logits):
        """Logits [N, T, V] by the model's ids -> float32 [N, T, 4 + V] by those of a search."""
        shape, logits = tf.shape(logits), tf.cast(logits, tf.float32)
        rows = tf.stack([shape[0] * shape[1], logits.shape[-1]])
        found = self.special_ids.logits_to_search(tf.reshape(logits, rows))  # [N * T, 4 + V]
        return tf.reshape(found, tf.stack([shape[0], shape[1], found.shape[-1]]))  # [N, T, 4 + V]

    def _labels(self, logits, labels):
        """log P(label) by logits [N, T, V] of the model, float32 [N, T]."""
        label = tf.gather(logits, self.special_ids.to_model(labels), batch_dims=2)
        return label - tf.reduce_logsumexp(logits, axis=-1)


def one_by_one(function, rows):
    """float32 [B, T] of a function of tensors [1, ...] that gives [1, T], of each of B rows alone:
    [B, T, V] of logits would be gigabytes."""
    return tf.map_fn(
        lambda row: function(*(part[None] for part in row))[0],
        rows,
        parallel_iterations=1,
        fn_output_signature=tf.float32,
    )


_SLICES = threading.Lock()  # one thread at a time: `keras.ops` is of the whole process


@contextlib.contextmanager
def stock_slice_update():
    """Inside, `keras.ops.slice_update`, by which these models write their caches, is stock
    operations: Keras's own is one of XLA, which no stock server runs."""
    with _SLICES:
        kept = keras.ops.slice_update
        keras.ops.slice_update = _slice_update
        try:
            yield
        finally:
            keras.ops.slice_update = kept


def _slice_update(inputs, start_indices, updates):
    """Updates of some positions, axis 1, of all that there is along the other axes."""
    _, first, *_ = start_indices
    behind = inputs[:, first + tf.shape(updates)[1] :]
    return tf.concat([inputs[:, :first], updates, behind], axis=1)
