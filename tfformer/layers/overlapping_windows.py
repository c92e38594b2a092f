"""Pieces: splits a text longer than the model's input into overlapping windows, and combines the
vectors of the windows."""

import keras
from keras import ops

from tfformer.config import PAD
from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.masks import padding_mask


@keras.saving.register_keras_serializable("tfformer")
class Pieces(Layer):
    """Splits texts into windows of `length` tokens; each repeats the last `overlap` tokens of the
    window before.

    A text has just enough pieces to reach its last token. Further pieces, which longer texts of the
    batch need, do not belong to it. No weights.

    Args:
        length: L, the number of tokens in a piece.
        overlap: the number of tokens that two neighbours share, below `length`. Default 0.

    Call arguments:
        ids: integers [B, S], padded with 0 at the end.

    Returns:
        (ids [B, P, L], boolean [B, P]). The boolean tells which pieces belong to their text; the
        first always does. If all texts are shorter than a piece, L is S.

    Raises:
        ValueError: `length` is not an integer of at least 1, or `overlap` is not in [0, length).
    """

    def __init__(self, length, overlap=0, **kwargs):
        super().__init__(**kwargs)
        check_whole(length=length)
        if not 0 <= overlap < length:
            raise ValueError(f"overlap must be in [0, length = {length}), got {overlap}")
        self.length, self.overlap = length, overlap

    def call(self, ids):
        size, stride = ops.shape(ids)[1], self.length - self.overlap
        length = _minimum(size, self.length)
        more = (_maximum(size - self.length, 0) + stride - 1) // stride  # pieces after the first
        ids = ops.pad(ids, [[0, 0], [0, length + more * stride - size]], constant_values=PAD)
        starts = ops.arange(more + 1) * stride
        places = starts[:, None] + ops.arange(length)  # [P, L]
        pieces = ops.take(ids, ops.reshape(places, (-1,)), axis=1)  # [B, P * L]
        tokens = ops.sum(ops.cast(padding_mask(ids), "int32"), axis=1)
        # The end of the previous piece. The first piece has none.
        seen = ops.cast(starts, "int32") - stride + self.length
        real = (starts == 0)[None] | (seen[None] < tokens[:, None])
        return ops.reshape(pieces, (-1, more + 1, length)), real  # [B, P, L], [B, P]

    def get_config(self):
        return {**super().get_config(), "length": self.length, "overlap": self.overlap}


def _minimum(a, b):
    """The smaller of two numbers; each may be a tensor."""
    return min(a, b) if isinstance(a, int) else ops.minimum(a, b)


def _maximum(a, b):
    return max(a, b) if isinstance(a, int) else ops.maximum(a, b)


@keras.saving.register_keras_serializable("tfformer")
class Recurrence(Layer):
    """The last state of an LSTM that reads the vectors of a text's pieces in order (Hochreiter and
    Schmidhuber 1997; for pieces, Pappagari et al. 2019, "Hierarchical Transformers for Long
    Document Classification").

    Args:
        d_model: D.

    Call arguments:
        x: [B, P, D].
        mask: boolean [B, P], True = piece.

    Returns:
        [B, D], the LSTM's state after the last piece.

    Raises:
        ValueError: `d_model` is not an integer of at least 1.
    """

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        check_whole(d_model=d_model)
        self.d_model = d_model
        # Fixed names: otherwise Keras numbers the cells of a process.
        cell = keras.layers.LSTMCell(d_model, name="cell", dtype=self.dtype_policy)
        self.lstm = keras.layers.RNN(cell, name="lstm", dtype=self.dtype_policy)

    def build(self, x_shape, mask_shape=None):
        self.lstm.build(x_shape)

    def call(self, x, mask, training=None):
        return self.lstm(x, mask=mask, training=training)

    def compute_mask(self, x, mask=None):
        """None: a vector has no positions."""

    def compute_output_shape(self, x_shape, mask_shape=None):
        return (x_shape[0], self.d_model)

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model}
