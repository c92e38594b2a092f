"""The inference layers of pieces: the windows of texts, and an LSTM over their vectors."""

import tensorflow as tf

from tfformer.config import PAD
from tfformer.layers import overlapping_windows
from tfformer.layers.weight_matrices import float_matrix


class Pieces:
    """Overlapping windows of `length` tokens."""

    def __init__(self, layer, name, fusing):
        self.length, self.stride = layer.length, layer.length - layer.overlap

    def __call__(self, weights, ids):
        """ids [B, S] -> ids [B, P, L], and which pieces belong to their text, bool [B, P]."""
        size = tf.shape(ids)[1]
        length = tf.minimum(size, self.length)
        more = (tf.maximum(size - self.length, 0) + self.stride - 1) // self.stride
        missing = length + more * self.stride - size
        ids = tf.pad(ids, [[0, 0], [0, missing]], constant_values=PAD)
        starts = tf.range(more + 1) * self.stride
        found = tf.gather(ids, starts[:, None] + tf.range(length), axis=1)  # [B, P, L]
        tokens = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
        seen = starts - self.stride + self.length
        return found, (starts == 0) | (seen < tokens[:, None])


class Recurrence:
    """An LSTM: i, f, g, o = x W + h U + b; c = f c + i tanh(g); h = o tanh(c)."""

    def __init__(self, layer, name, fusing):
        cell, self.name, self.size, self.dtype = layer.lstm.cell, name, layer.d_model, fusing.dtype
        fusing.weights[name] = {
            "kernel": tf.cast(float_matrix(cell), fusing.dtype),
            "recurrent": tf.cast(cell.recurrent_kernel, fusing.dtype),
            "bias": tf.cast(cell.bias, fusing.dtype),
        }

    def __call__(self, weights, x, mask):
        """x [B, P, D] and boolean [B, P], True = piece -> [B, D]."""
        own, zeros = weights[self.name], tf.zeros([tf.shape(x)[0], self.size], self.dtype)

        def read(p, state, cell):
            gates = tf.matmul(x[:, p], own["kernel"]) + tf.matmul(state, own["recurrent"])
            enter, forget, new, out = tf.split(gates + own["bias"], 4, axis=1)
            after = tf.sigmoid(forget) * cell + tf.sigmoid(enter) * tf.tanh(new)
            real = mask[:, p, None]
            state = tf.where(real, tf.sigmoid(out) * tf.tanh(after), state)
            return p + 1, state, tf.where(real, after, cell)

        count = tf.shape(x)[1]
        _, state, _ = tf.while_loop(lambda p, *_: p < count, read, (0, zeros, zeros))
        return state


INFERENCE_LAYERS = {overlapping_windows.Pieces: Pieces, overlapping_windows.Recurrence: Recurrence}
