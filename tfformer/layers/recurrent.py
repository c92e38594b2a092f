"""The recurrent encoder and decoder with attention that the Transformer is compared with (Bahdanau
et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate").

It differs from the Transformer in what a step waits for. Here position t needs the state of t - 1,
so reading a text and learning a target go one position at a time. A Transformer computes all
positions at once.
"""

import keras
from keras import ops

from tfformer.layers.dropout import Dropout
from tfformer.layers.layer import Layer, check_whole
from tfformer.layers.weight_matrices import Matrix

MASKED = -1e9


@keras.saving.register_keras_serializable("tfformer")
class RecurrentEncoder(Layer):
    """N bidirectional layers of gated recurrent units (Cho et al. 2014): h_j = [forward; backward].

    Args:
        num_layers: N.
        d_model: D, even; each direction has half of it.
        dropout: P_drop, on the input of each layer except the first. Default 0.1.

    Call arguments:
        x: [B, S, D].
        mask: boolean [B, S], True = token, padding at the end. Default: all are tokens.

    Returns:
        [B, S, D].

    Raises:
        ValueError: a size is not an integer of at least 1.
    """

    def __init__(self, num_layers, d_model, dropout=0.1, **kwargs):
        super().__init__(**kwargs)
        check_whole(num_layers=num_layers, d_model=d_model)
        self.num_layers, self.d_model, self.dropout = num_layers, d_model, dropout
        self.supports_masking = True
        common = {"dtype": self.dtype_policy}
        self.layers = [
            keras.layers.Bidirectional(
                # cuDNN needs a token in each row, but a batch may have rows of padding only.
                keras.layers.GRU(
                    d_model // 2, return_sequences=True, use_cudnn=False, name="gru", **common
                ),
                name=f"layer_{n}",
                **common,
            )
            for n in range(num_layers)
        ]
        self.dropouts = [Dropout(dropout, **common) for _ in range(num_layers - 1)]

    def build(self, x_shape):
        for layer in self.layers:
            layer.build(x_shape)

    def matrices(self):
        """The `Matrix` of each product. The three gates of a unit stand side by side."""
        for layer in self.layers:
            for side in (layer.forward_layer, layer.backward_layer):
                yield Matrix.of(side.cell, heads=3)
                yield Matrix.of(side.cell, "recurrent_kernel", heads=3)

    def call(self, x, mask=None, training=None):
        for n, layer in enumerate(self.layers):
            if n:
                x = self.dropouts[n - 1](x, training=training)
            x = layer(x, mask=mask)
        return x

    def get_config(self):
        known = {"num_layers": self.num_layers, "d_model": self.d_model, "dropout": self.dropout}
        return {**super().get_config(), **known}


@keras.saving.register_keras_serializable("tfformer")
class RecurrentDecoder(Layer):
    """N layers of gated recurrent units with attention. The first layer reads the embedded word
    y_i-1 and a context c_i. The last one is followed by t_i = tanh([s_i; c_i; y_i-1] W + b).

        e_ij = v tanh(s_i-1 W_a + h_j U_a),  a_i = softmax(e_i),  c_i = sum_j a_ij h_j

    (Bahdanau et al. 2015, sections 3.1 and A.1, with tanh in place of their maxout.) s_0 is
    computed from the backward encoder's state at the first word. Without attention, all steps share
    one context: the final states of both directions (Cho et al. 2014).

    Args:
        num_layers: N.
        d_model: D.
        attention: whether each step has its own context. Default True.

    Call arguments:
        x: [B, T, D], the embedded target that the decoder reads.
        memory: the result of `read`.

    Returns:
        t, [B, T, D], and a, float32 [B, T, S]. Without attention, a holds equal weights.

    Raises:
        ValueError: a size is not an integer of at least 1.
    """

    def __init__(self, num_layers, d_model, attention=True, **kwargs):
        super().__init__(**kwargs)
        check_whole(num_layers=num_layers, d_model=d_model)
        self.num_layers, self.d_model, self.attention = num_layers, d_model, attention
        self.supports_masking = True
        common = {"dtype": self.dtype_policy}
        self.cells = [
            keras.layers.GRUCell(d_model, name=f"cell_{n}", **common) for n in range(num_layers)
        ]
        self.first_states = keras.layers.Dense(
            num_layers * d_model, "tanh", name="first_states", **common
        )
        self.behind = keras.layers.Dense(d_model, "tanh", name="behind", **common)
        if attention:
            self.of_state = keras.layers.Dense(d_model, name="of_state", **common)
            self.of_memory = keras.layers.Dense(d_model, use_bias=False, name="of_memory", **common)
            self.energy = keras.layers.Dense(1, use_bias=False, name="energy", **common)

    def build(self, x_shape, memory_shape=None):
        width = self.d_model
        for n, cell in enumerate(self.cells):
            cell.build((None, 2 * width if n == 0 else width))
        self.first_states.build((None, width // 2))
        self.behind.build((None, 3 * width))
        if self.attention:
            for layer in (self.of_state, self.of_memory, self.energy):
                layer.build((None, None, width))

    def matrices(self):
        """The `Matrix` of each product of a step; those of the memory run once for a source."""
        for cell in self.cells:
            yield Matrix.of(cell, heads=3)
            yield Matrix.of(cell, "recurrent_kernel", heads=3)
        yield Matrix.of(self.behind)
        if self.attention:
            yield Matrix.of(self.of_state)
            yield Matrix.of(self.of_memory, of_memory=True)

    def read(self, states, mask):
        """Prepare the encoder's states h [B, S, D] and their mask [B, S] for the decoder.

        Returns a dictionary whose values have B rows: the states, their projection for attention,
        the mask, the first decoder states [B, N D], and one vector of the whole text, [B, D].
        """
        half = self.d_model // 2
        count = ops.cast(ops.sum(ops.cast(mask, "int32"), axis=1), "int32")
        last = ops.one_hot(ops.maximum(count - 1, 0), ops.shape(states)[1], dtype=states.dtype)
        of_last = ops.sum(states * last[:, :, None], axis=1)[:, :half]  # [B, D / 2]
        backward = states[:, 0, half:]  # [B, D / 2]
        memory = {
            "states": states,
            "mask": mask,
            "first": self.first_states(backward),
            "whole": ops.concatenate([of_last, backward], axis=-1),
        }
        return {**memory, "keys": self.of_memory(states)} if self.attention else memory

    def step(self, x, states, memory):
        """One step of rows [..., D]. The first axis is that of the memory.

        Args:
            x: [B, W, D].
            states: [B, W, N D], of all layers after the previous step.
            memory: from `read`.

        Returns:
            t [B, W, D], the states [B, W, N D], a [B, W, S].
        """
        context, attention = self._context(states, memory)
        inputs, found = ops.concatenate([x, context], axis=-1), []
        shape = ops.shape(x)
        for n, cell in enumerate(self.cells):
            own = states[..., n * self.d_model : (n + 1) * self.d_model]
            read = self.d_model * (1 if n else 2)
            rows = ops.reshape(inputs, (-1, read))  # [B * W, 2 D], of the others D
            own = ops.reshape(own, (-1, self.d_model))  # [B * W, D]
            inputs = ops.reshape(cell(rows, [own])[0], shape)  # [B, W, D]
            found.append(inputs)
        rows = ops.concatenate([inputs, context, x], axis=-1)
        rows = ops.reshape(rows, (*shape[:-1], 3 * self.d_model))  # [B, W, 3 D]
        behind = self.behind(rows)
        return behind, ops.concatenate(found, axis=-1), attention

    def _context(self, states, memory):
        """c [B, W, D] and a [B, W, S], from the states before a step."""
        real = ops.cast(memory["mask"], "float32")
        if not self.attention:
            whole = memory["whole"][:, None] + ops.zeros_like(states[..., : self.d_model])
            even = real / ops.maximum(ops.sum(real, axis=1, keepdims=True), 1)
            return whole, even[:, None] + ops.zeros_like(states[..., :1], dtype="float32")
        top = self.of_state(states[..., -self.d_model :])  # [B, W, D]
        energy = ops.tanh(top[:, :, None] + memory["keys"][:, None])  # [B, W, S, D]
        scores = ops.cast(self.energy(energy)[..., 0], "float32") + (1 - real[:, None]) * MASKED
        attention = ops.softmax(scores, axis=-1)  # [B, W, S]
        return ops.matmul(ops.cast(attention, states.dtype), memory["states"]), attention

    def call(self, x, memory):
        width, size = self.d_model, self.num_layers * self.d_model

        # The scan carries and keeps tensors of one shape: t, the states and a, side by side.
        def advance(carried, x):
            states = ops.reshape(carried[:, width : width + size], (-1, 1, size))  # [B, 1, N D]
            found = self.step(x[:, None], states, memory)
            found = [ops.cast(part[:, 0], x.dtype) for part in found]
            carried = ops.concatenate(found, axis=-1)  # [B, D + N D + S]
            return carried, carried

        x = ops.swapaxes(x, 0, 1)  # [T, B, D]
        rest = ops.zeros_like(x[0]), ops.zeros_like(ops.cast(memory["mask"], x.dtype))
        first = ops.concatenate([rest[0], ops.cast(memory["first"], x.dtype), rest[1]], axis=-1)
        found = ops.swapaxes(ops.scan(advance, first, x)[1], 0, 1)  # [B, T, D + N D + S]
        behind = ops.reshape(found[..., :width], (-1, ops.shape(found)[1], width))  # [B, T, D]
        return behind, ops.cast(found[..., width + size :], "float32")

    def get_config(self):
        known = {
            "num_layers": self.num_layers,
            "d_model": self.d_model,
            "attention": self.attention,
        }
        return {**super().get_config(), **known}
