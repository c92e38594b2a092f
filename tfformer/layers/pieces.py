"""Pieces: a text that is longer than a model reads at once, in windows that overlap, and what they
come to together."""

import keras
from keras import ops

from tfformer.config import PAD
from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.masks import padding_mask


@keras.saving.register_keras_serializable("tfformer")
class Pieces(Layer):
    """The windows of texts: `length` tokens each, of which `overlap` are those of the one before.

    A text has as many pieces as it needs until its last token is in one; those that its batch-mates
    need besides are none of it. No weights.

    Args:
        length: L, tokens of a piece.
        overlap: tokens that two neighbours share, fewer than `length`. Default 0.

    Call arguments:
        ids: integers [B, S], 0 is padding behind.

    Returns:
        (ids [B, P, L], boolean [B, P], which of them are pieces of their text: the first is
        always). Of texts that are shorter than a piece, L is their own length.

    Raises:
        ValueError: `length` is no integer of at least 1, or `overlap` is not in [0, length).
    """

    def __init__(self, length, overlap=0, **kwargs):
        super().__init__(**kwargs)
        check_whole(length=length)
        if not 0 <= overlap < length:
            raise ValueError(f"overlap must be in [0, length = {length}), got {overlap}")
        self.length, self.overlap = length, overlap

    def call(self, ids):
        size, stride = ops.shape(ids)[1], self.length - self.overlap
        length = _least(size, self.length)
        more = (_most(size - self.length, 0) + stride - 1) // stride  # pieces after the first
        ids = ops.pad(ids, [[0, 0], [0, length + more * stride - size]], constant_values=PAD)
        starts = ops.arange(more + 1) * stride
        places = starts[:, None] + ops.arange(length)  # [P, L]
        pieces = ops.take(ids, ops.reshape(places, (-1,)), axis=1)  # [B, P * L]
        tokens = ops.sum(ops.cast(padding_mask(ids), "int32"), axis=1)
        # The end of the piece before; the first has none.
        seen = ops.cast(starts, "int32") - stride + self.length
        real = (starts == 0)[None] | (seen[None] < tokens[:, None])
        return ops.reshape(pieces, (-1, more + 1, length)), real  # [B, P, L], [B, P]

    def get_config(self):
        return {**super().get_config(), "length": self.length, "overlap": self.overlap}


def _least(a, b):
    """The smaller of two numbers, of which one may be a tensor."""
    return min(a, b) if isinstance(a, int) else ops.minimum(a, b)


def _most(a, b):
    return max(a, b) if isinstance(a, int) else ops.maximum(a, b)


@keras.saving.register_keras_serializable("tfformer")
class Recurrence(Layer):
    """What an LSTM has read of the vectors of a text's pieces, the first one first (Hochreiter and
    Schmidhuber 1997; of pieces, Pappagari et al. 2019, "Hierarchical Transformers for Long Document
    Classification").

    Args:
        d_model: D.

    Call arguments:
        x: [B, P, D].
        mask: boolean [B, P], True = piece.

    Returns:
        [B, D], its state after the last piece.

    Raises:
        ValueError: `d_model` is no integer of at least 1.
    """

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        check_whole(d_model=d_model)
        self.d_model = d_model
        # With names of their own: Keras would count the cells of a process.
        cell = keras.layers.LSTMCell(d_model, name="cell", dtype=self.dtype_policy)
        self.lstm = keras.layers.RNN(cell, name="lstm", dtype=self.dtype_policy)

    def build(self, x_shape, mask_shape=None):
        self.lstm.build(x_shape)

    def call(self, x, mask, training=None):
        return self.lstm(x, mask=mask, training=training)

    def compute_mask(self, x, mask=None):
        """None: a vector has no places."""

    def compute_output_shape(self, x_shape, mask_shape=None):
        return (x_shape[0], self.d_model)

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model}
