"""Muon: the layers' matrices learn by orthogonal steps, everything else by Adam."""

import tensorflow as tf

from training.adam import Adam

# Of an odd polynomial a s + b s^3 + c s^5 that moves every singular value s in (0, 1] towards 1:
# so steep at 0 that five passes bring all but the least into [0.68, 1.21] (Jordan et al. 2024).
A, B, C = 3.4445, -4.7750, 2.0315
PASSES = 5


class Muon(Adam):
    """Momentum, orthogonalised (Jordan et al. 2024, "Muon: An optimizer for hidden layers").

    The gradient of a matrix is mostly of low rank: a few directions that every token agrees on.
    Adam scales it element by element and leaves it so. Muon takes the momentum's singular value
    decomposition U S V^T and steps by U V^T, as far in the rare directions as in the usual ones:

        M <- momentum M + (1 - momentum) G
        W <- W - 0.2 sqrt(max(rows, columns)) learning_rate U V^T

    where U S V^T is of (1 - momentum) G + momentum M, Nesterov's look ahead. The factor gives the
    step the size of Adam's, elements of 0.2 in the root mean square, so that one learning rate
    serves both (Liu et al. 2025, equation 4). Heads do not share directions: each head's part of an
    attention's matrices is a matrix by itself.

    Matrices are the kernels of encoder and decoder. Embeddings, whose rows are seen one at a time,
    the output projection, gains and biases stay with Adam.

    Args:
        learning_rate: a float or a schedule.
        num_heads: h of the model's attentions.
        momentum: of matrices. Default 0.95.
        **options: of `training.adam.Adam`.

    Of each matrix there is a second moment too, as Adam has it, which stays 0.
    """

    def __init__(self, learning_rate=0.001, num_heads=8, momentum=0.95, **options):
        super().__init__(learning_rate, **options)
        self.num_heads, self.momentum = num_heads, momentum

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        path = self._trainable_variables[index].path.split("/")
        if path[-1] != "kernel" or not {"encoder", "decoder"} & set(path):
            return super().update_step(gradient, variable, learning_rate)
        heads, axis = 1, 1
        if path[-3].endswith("attention"):
            heads, axis = self.num_heads, 0 if path[-2] == "output" else 1
        memory = self._momentums[index].value
        gradient = tf.cast(gradient, variable.dtype) * (1 - self.momentum)
        memory.assign(self.momentum * memory + gradient)
        parts = tf.stack(tf.split(gradient + self.momentum * memory, heads, axis))
        step = tf.concat(tf.unstack(orthogonal(parts)), axis)
        size = 0.2 * max(parts.shape[1:]) ** 0.5
        variable.assign_sub(size * tf.cast(learning_rate, variable.dtype) * step)

    def get_config(self):
        return super().get_config() | {"num_heads": self.num_heads, "momentum": self.momentum}


def orthogonal(x):
    """Of x = U S V^T about U V^T: [..., rows, columns], a matrix of zeros stays one.

    By the iteration of Newton and Schulz, which needs products alone; its singular values lie in
    [0.68, 1.21], but for those of x below 0.002 of its Frobenius norm, which have not come so far.
    """
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = tf.linalg.matrix_transpose(x)
    x /= tf.norm(x, axis=[-2, -1], keepdims=True) + 1e-20
    for _ in range(PASSES):
        square = tf.matmul(x, x, transpose_b=True)
        x = A * x + tf.matmul(B * square + C * tf.matmul(square, square), x)
    return tf.linalg.matrix_transpose(x) if tall else x
