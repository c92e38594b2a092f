"""Muon: orthogonal update steps for the matrices of layers, Adam for everything else."""

import tensorflow as tf

from .adam import Adam
from .muon_matrices import PASSES, A, B, C


class Muon(Adam):
    """Momentum, orthogonalised (Jordan et al. 2024, "Muon: An optimizer for hidden layers").

    The gradient of a matrix is mostly of low rank: a few directions that every token shares.
    Adam scales it element by element and does not change that. Muon computes the singular value
    decomposition U S V^T of the momentum and uses U V^T as the step, which is equally long in rare
    and in frequent directions:

        M <- momentum M + (1 - momentum) G
        W <- (1 - learning_rate weight_decay) W
             - 0.2 sqrt(max(rows, columns)) learning_rate U V^T

    where U S V^T is the decomposition of (1 - momentum) G + momentum M, Nesterov's look-ahead. The
    factor gives the step the size of an Adam step, with elements of 0.2 in the root mean square. So
    one learning rate works for both (Liu et al. 2025, equation 4). Heads do not share directions:
    the part of each head in an attention's matrices is treated as a separate matrix.

    Adam updates embeddings (whose rows occur one at a time), the output projection, gains and
    biases.

    Args:
        learning_rate: a float or a schedule.
        matrices: {path of a variable: (number of heads, axis of the heads)} of the matrices that
            Muon updates, from `matrices_of`.
        momentum: of matrices. Default 0.95.
        compute_dtype: of the matrix products that make a step orthogonal; in bfloat16 its singular
            values lie in [0.6, 1.3]. Default `"float32"`.
        **options: of `training.step.adam.Adam`.

    Each matrix also has Adam's second moment, which stays 0.
    """

    def __init__(self, learning_rate, matrices, momentum=0.95, compute_dtype="float32", **options):
        super().__init__(learning_rate, **options)
        self.matrices = {path: tuple(cut) for path, cut in matrices.items()}
        self.momentum, self.compute_dtype = momentum, compute_dtype

    def build(self, variables):
        """Raises a ValueError if `matrices` has none of the variables: it is for another model."""
        super().build(variables)
        if self.matrices and not set(self.matrices) & {v.path for v in self._trainable_variables}:
            raise ValueError(
                "matrices must be paths of the model's variables, got none of them in "
                f"{sorted(self.matrices)[:3]}"
            )

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        """Computes the steps of all matrices of one shape together, in few large products.

        The gradient of a matrix becomes its momentum, its U V^T and their factor, for
        `update_step`.
        """
        grads, shapes = list(grads), {}
        for n, variable in enumerate(trainable_variables):
            if (cut := self._heads(variable)) is None:
                continue
            memory = self._momentums[self._get_variable_index(variable)].value
            gradient = tf.cast(grads[n], memory.dtype) * (1 - self.momentum)
            memory = self.momentum * memory + gradient
            parts = tf.stack(tf.split(gradient + self.momentum * memory, *cut))
            shapes.setdefault(tuple(parts.shape[1:]), []).append((n, memory, parts, cut))
        for shape, members in shapes.items():
            parts = tf.concat([parts for _, _, parts, _ in members], axis=0)
            steps = orthogonal(parts, self.compute_dtype)
            steps = tf.split(steps, [heads for _, _, _, (heads, _) in members])
            for (n, memory, _, (_, axis)), step in zip(members, steps, strict=True):
                grads[n] = memory, tf.concat(tf.unstack(step), axis), 0.2 * max(shape) ** 0.5
        super()._backend_update_step(grads, trainable_variables, learning_rate)

    def update_step(self, gradient, variable, learning_rate):
        if self._heads(variable) is None:
            return super().update_step(gradient, variable, learning_rate)
        memory, step, factor = gradient
        self._momentums[self._get_variable_index(variable)].value.assign(memory)
        variable.assign_sub(tf.cast(factor * learning_rate, variable.dtype) * step)

    def _heads(self, variable):
        """(number of heads, axis of the heads) of a matrix; None if Adam updates the variable."""
        index = self._get_variable_index(variable)
        return self.matrices.get(self._trainable_variables[index].path)

    def get_config(self):
        names = ("matrices", "momentum", "compute_dtype")
        return super().get_config() | {name: getattr(self, name) for name in names}


def orthogonal(x, compute_dtype=None):
    """Approximately U V^T for x = U S V^T, [..., rows, columns]; a matrix of zeros stays zero.

    Uses the Newton-Schulz iteration, which needs only matrix products. The singular values of the
    result lie in [0.68, 1.21]. Those that are below 0.002 of the Frobenius norm in x stay smaller.
    """
    dtype, tall = x.dtype, x.shape[-2] > x.shape[-1]
    if tall:
        x = tf.linalg.matrix_transpose(x)
    x = tf.cast(x / (tf.norm(x, axis=[-2, -1], keepdims=True) + 1e-20), compute_dtype or dtype)
    first = A * tf.eye(x.shape[-2], dtype=x.dtype)
    for _ in range(PASSES):
        square = tf.matmul(x, x, transpose_b=True)
        x = tf.matmul(first + B * square + C * tf.matmul(square, square), x)
    return tf.cast(tf.linalg.matrix_transpose(x) if tall else x, dtype)
