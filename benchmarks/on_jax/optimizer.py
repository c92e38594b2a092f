"""The optimizers of `training.train` as pure functions of arrays, for JAX.

With Muon, matrices of the layers learn by Muon and everything else by Adam. Both have the clipping
and the weight decay of `training.train`. Tests compare the two implementations.
"""

import jax.numpy as jnp

from training.step.muon_matrices import PASSES, A, B, C, matrices_of

# The values of `training.step.model`.
MOMENTUM, BETA_1, BETA_2, EPSILON = 0.95, 0.9, 0.98, 1e-9


class Optimizer:
    """Muon for a model's matrices and Adam for the rest, or Adam for all.

    Args:
        name: "muon" or "adam".
        model: the model, whose `trainable_variables` are learned.
        weight_decay: the weight decay of matrices and embeddings.
        clip_norm: the maximum norm of the gradient; 0: no clipping.
        compute_dtype: the dtype of the products that make a step orthogonal.
    """

    def __init__(self, name, model, weight_decay, clip_norm, compute_dtype):
        matrices = matrices_of(model) if name == "muon" else {}
        variables = model.trainable_variables
        self.cuts = [matrices.get(variable.path) for variable in variables]
        self.decays = [len(v.shape) > 1 and v.name != "bias" for v in variables]
        self.weight_decay, self.clip_norm = weight_decay, clip_norm
        self.compute_dtype = compute_dtype

    def start(self, weights):
        """The state before the first step: two moments for each weight, one for a matrix."""
        first = [jnp.zeros_like(weight) for weight in weights]
        second = [
            jnp.zeros(()) if cut else jnp.zeros_like(weight)
            for cut, weight in zip(self.cuts, weights, strict=True)
        ]
        return first, second

    def step(self, weights, gradients, state, number, rate):
        """Weights and state after step `number`, from 0, at this learning rate."""
        if self.clip_norm:
            norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients))
            kept = self.clip_norm / jnp.maximum(norm, self.clip_norm)
            gradients = [gradient * kept for gradient in gradients]
        weights = [
            weight * (1 - rate * self.weight_decay) if decays else weight
            for weight, decays in zip(weights, self.decays, strict=True)
        ]
        turned = self._turned(gradients, state[0])
        first, second, found = [], [], []
        count = number + 1.0
        scale = jnp.sqrt(1 - BETA_2**count) / (1 - BETA_1**count)
        for n, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            if n in turned:
                memory, step = turned[n]
                first.append(memory)
                second.append(state[1][n])
                found.append(weight - rate * step)
            else:
                mean = BETA_1 * state[0][n] + (1 - BETA_1) * gradient
                square = BETA_2 * state[1][n] + (1 - BETA_2) * jnp.square(gradient)
                first.append(mean)
                second.append(square)
                found.append(weight - rate * scale * mean / (jnp.sqrt(square) + EPSILON))
        return found, (first, second)

    def _turned(self, gradients, memories):
        """{number of a matrix: (its momentum, its orthogonal step)}, all of one shape at once."""
        shapes = {}
        for n, cut in enumerate(self.cuts):
            if cut is None:
                continue
            gradient = gradients[n] * (1 - MOMENTUM)
            memory = MOMENTUM * memories[n] + gradient
            parts = jnp.stack(jnp.split(gradient + MOMENTUM * memory, *cut))
            shapes.setdefault(parts.shape[1:], []).append((n, memory, parts, cut))
        turned = {}
        for shape, members in shapes.items():
            steps = orthogonal(jnp.concatenate([m[2] for m in members]), self.compute_dtype)
            start = 0
            for n, memory, parts, (_, axis) in members:
                step = jnp.concatenate(list(steps[start : start + len(parts)]), axis)
                turned[n] = memory, 0.2 * max(shape) ** 0.5 * step
                start += len(parts)
        return turned


def orthogonal(x, compute_dtype):
    """As `training.step.muon.orthogonal`: [N, rows, columns]."""
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = jnp.swapaxes(x, -1, -2)
    norm = jnp.sqrt(jnp.sum(jnp.square(x), axis=(-2, -1), keepdims=True))
    x = (x / (norm + 1e-20)).astype(compute_dtype)
    first = A * jnp.eye(x.shape[-2], dtype=x.dtype)
    for _ in range(PASSES):
        square = x @ jnp.swapaxes(x, -1, -2)
        x = (first + B * square + C * (square @ square)) @ x
    x = x.astype("float32")
    return jnp.swapaxes(x, -1, -2) if tall else x
