"""Shared code of the wrapped KerasHub models: their caches, and the conversion of ids.

The models are recognised by their class names, so KerasHub is not imported.
"""

import contextlib
import threading
from typing import NamedTuple

import keras
import tensorflow as tf


class CacheSize(NamedTuple):
    """The size of a cache: N layers of H heads of K numbers, for keys and for values.

    A model's cache, [B, N, 2, T, H, K], has one hypothesis for each row. A search's cache,
    [B, C, W * F], has all W hypotheses of a sentence: at each of C positions, F numbers per beam.
    """

    num_layers: int
    num_heads: int
    head_size: int

    @property
    def numbers(self):
        """F, the numbers of one beam at one position."""
        return self.num_layers * 2 * self.num_heads * self.head_size

    def empty(self, batch, length, dtype):
        """A model's cache for T = `length` positions, filled with zeros."""
        shape = [batch, self.num_layers, 2, length, self.num_heads, self.head_size]
        return tf.zeros(tf.stack(shape), dtype)

    def past(self, cache, visible):
        """A model's cache [B * W, N, 2, C, H, K] with the past of each hypothesis, gathered from
        the beams of its ancestors. `visible` is boolean [B, W, C, W], from the step."""
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
        """Write `new` [B * W, N, 2, H, K] to a search's cache at a position, in place."""
        batch, capacity, row = tf.unstack(tf.shape(cache))
        cache = tf.raw_ops.InplaceUpdate(
            x=tf.reshape(cache, tf.stack([batch * capacity, row])),  # [B * C, W * F]
            i=tf.range(batch) * capacity + position,
            v=tf.reshape(new, tf.stack([batch, row])),  # [B, W * F]
        )
        return tf.reshape(cache, tf.stack([batch, capacity, row]))  # [B, C, W * F]


def kind_of(model, kinds, unk=None):
    """Find the class that wraps a model of KerasHub, and make it.

    Args:
        model: an instance of one of the kinds, or of a subclass, with its preprocessor.
        kinds: {the name of a class: a function of a model and of `unk`}
        unk: the id of text outside its vocabulary, or None.

    Raises:
        ValueError: the model is of no such kind, or has no preprocessor.
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
    """The forward pass of a model of KerasHub, by its own layers and their caches.

    A search uses ids 0 to 3 for pad, unk, bos and eos, and 4 + n for the model's id n. A step
    copies the past of each hypothesis into a cache of the model's form, because the attention of
    the model cannot select ancestors.

    Args:
        kind: from `kind_of`.
    """

    def __init__(self, kind):
        self.kind, self.special_ids = kind, kind.special_ids

    def vocabulary_ids(self, ids):
        """Convert ids of a search to ids of the vocabulary: no change."""
        return ids

    def _to_search(self, logits):
        """Logits [N, T, V] for the model's ids -> float32 [N, T, 4 + V] for those of a search."""
        shape, logits = tf.shape(logits), tf.cast(logits, tf.float32)
        rows = tf.stack([shape[0] * shape[1], logits.shape[-1]])
        found = self.special_ids.logits_to_search(tf.reshape(logits, rows))  # [N * T, 4 + V]
        return tf.reshape(found, tf.stack([shape[0], shape[1], found.shape[-1]]))  # [N, T, 4 + V]

    def _labels(self, logits, labels):
        """log P(label) from the model's logits [N, T, V], float32 [N, T]."""
        label = tf.gather(logits, self.special_ids.to_model(labels), batch_dims=2)
        return label - tf.reduce_logsumexp(logits, axis=-1)


def one_by_one(function, rows):
    """Apply a function of tensors [1, ...] that returns [1, T] to each of B rows: float32 [B, T].
    For all rows at once the logits, [B, T, V], would need gigabytes."""
    return tf.map_fn(
        lambda row: function(*(part[None] for part in row))[0],
        rows,
        parallel_iterations=1,
        fn_output_signature=tf.float32,
    )


_SLICES = threading.Lock()  # one thread at a time: `keras.ops` is shared by the whole process


@contextlib.contextmanager
def stock_slice_update():
    """Inside this context, `keras.ops.slice_update` consists of stock operations. These models
    write their caches by it. Keras's version uses an XLA op, which a stock server cannot run."""
    with _SLICES:
        kept = keras.ops.slice_update
        keras.ops.slice_update = _slice_update
        try:
            yield
        finally:
            keras.ops.slice_update = kept


def _slice_update(inputs, start_indices, updates):
    """Update some positions, axis 1, over the whole size of the other axes."""
    _, first, *_ = start_indices
    behind = inputs[:, first + tf.shape(updates)[1] :]
    return tf.concat([inputs[:, :first], updates, behind], axis=1)
