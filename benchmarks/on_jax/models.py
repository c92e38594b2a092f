"""Models of one configuration that are trained in one step, on JAX."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import keras
import numpy as np

from benchmarks.on_jax.batches import EDGES
from benchmarks.on_jax.optimizer import Muon
from tfformer import Transformer, TransformerConfig
from tfformer.config import BOS
from tfformer.files import RunError
from tfformer.loss import flattened, smoothed_cross_entropy, symmetric_divergence, token_weights
from tfformer.run import set_weights, variable_name

VALIDATED = 256  # pairs at once


class Models:
    """Models that differ in their weights, dropout, batches and options.

    Their arrays are stacked: [models, ...].

    Args:
        settings: the settings of `pack`: the model's configuration and the recipe's settings.
        options: a dict for each model: its `seed`; `reverse`, whether source and target are
            exchanged; `r_drop`, the weight of R-Drop; `teacher_weight`, that of the teachers.
        ids: the training corpus of `pack`.
        passes: 2 for R-Drop, where a batch has its rows twice.
        teachers: {file: weights by name}, for models of these sizes; may be empty.
        dtype: a Keras dtype policy.

    Attributes:
        names: the names of the weights, in their order.
        state: weights, seeds of dropout, the optimizer's state, and the sum of the losses.
        total: the sum of the weights for the average.

    Raises:
        RunError: the weights of a teacher do not fit such a model.
    """

    def __init__(self, settings, options, ids, passes, teachers, dtype):
        self.smoothing, self.passes = settings["recipe"]["smoothing"], passes
        config = TransformerConfig.from_dict(settings["model"])
        weights, seeds = [], []
        for one in options:
            keras.utils.set_random_seed(one["seed"])
            self.model = Transformer(config, dtype=dtype)
            weights.append(values(self.model.trainable_variables))
            seeds.append(values(self.model.non_trainable_variables))
        self.names = [variable_name(v) for v in self.model.trainable_variables]
        self.optimizer = Muon(
            self.model,
            settings["recipe"]["weight_decay"],
            settings["recipe"]["clip_norm"],
            self.model.compute_dtype,
        )
        weights = stacked(weights)
        memory = jax.vmap(self.optimizer.start)(weights)
        self.state = weights, stacked(seeds), memory, jnp.zeros(len(options))
        self.total = jax.tree.map(jnp.zeros_like, weights)
        self.reverse = jnp.array([one["reverse"] for one in options], "int32")
        self.r_drop = jnp.array([one["r_drop"] for one in options], "float32")
        self.teacher_weight = jnp.array([one["teacher_weight"] for one in options], "float32")
        read = []
        for path, arrays in teachers.items():
            try:
                set_weights(self.model, {n: x.astype("float32") for n, x in arrays.items()})
            except RunError as error:
                raise RunError(f"{path}: {error}") from error
            read.append(values(self.model.trainable_variables))
        self.teachers = stacked(read) if read else None
        self.ids = jnp.asarray(ids)

    def compile(self, rows):
        """Compiles the step of each bucket of {bucket: rows} in parallel."""
        number = jnp.float32(0)

        def lower(bucket):
            def step(*arguments):
                return self._step(int(EDGES[bucket]), *arguments)

            index = jax.ShapeDtypeStruct((len(self.reverse), rows[bucket], 3), "int32")
            rest = self.ids, self._constants(), index, number, number, number
            return jax.jit(step, donate_argnums=(0, 1)).lower(self.state, self.total, *rest)

        lowered = [lower(bucket) for bucket in rows]
        with ThreadPoolExecutor(len(rows)) as pool:
            compiled = pool.map(lambda step: step.compile(), lowered)
            self.steps = dict(zip(rows, compiled, strict=True))

    def step(self, bucket, index, number, rate, add):
        """Makes a step of all models.

        Args:
            bucket, index: a batch of `Batches.epoch`.
            number: the number of the step, from 0.
            rate: the learning rate.
            add: 1 to add the new weights to the average, otherwise 0.
        """
        numbers = jnp.float32(number), jnp.float32(rate), jnp.float32(add)
        rest = self.ids, self._constants(), jnp.asarray(index), *numbers
        self.state, self.total = self.steps[bucket](self.state, self.total, *rest)

    def losses(self):
        """The sums of the losses of all steps so far, [models]."""
        return np.asarray(self.state[3])

    def validation(self, ids):
        """A function that returns the perplexity of each model on int16 [2, 1, M, S], with its own
        weights or with others."""

        def part(weights, seeds, pairs, reverse):
            source, labels = sides(pairs, reverse)
            logits, _ = self._logits(weights, seeds, source, before(labels), False)
            flat, logits = flattened(labels, logits)
            counts = token_weights(labels).reshape(-1)
            return jnp.sum(smoothed_cross_entropy(flat, logits, 0.0) * counts), jnp.sum(counts)

        part = jax.jit(jax.vmap(part, (0, 0, None, 0)))
        pairs = ids[:, 0].astype("int32")
        missing = -pairs.shape[1] % VALIDATED
        pairs = jnp.asarray(np.pad(pairs, ((0, 0), (0, missing), (0, 0))))

        def perplexities(weights=None):
            own, seeds = self.state[:2]
            weights = own if weights is None else weights
            parts = [
                part(weights, seeds, pairs[:, n : n + VALIDATED], self.reverse)
                for n in range(0, pairs.shape[1], VALIDATED)
            ]
            return np.exp(sum(p[0] for p in parts) / sum(p[1] for p in parts)).tolist()

        return perplexities

    def _constants(self):
        return self.reverse, self.r_drop, self.teacher_weight, self.teachers

    def _step(self, edge, state, total, ids, constants, index, number, rate, add):
        """The state after a batch of rows of `edge` tokens, and the sum of weights."""
        weights, seeds, memory, losses = state

        def one(weights, seeds, memory, index, reverse, r_drop, teacher_weight, teachers):
            pairs = [
                jnp.where(index[:, :1] < 0, 0, ids[side, index[:, 1 + side], index[:, 0], :edge])
                for side in (0, 1)
            ]
            batch = [side.astype("int32") for side in sides(pairs, reverse)]
            (loss, after), gradients = jax.value_and_grad(self._loss, has_aux=True)(
                weights, seeds, *batch, r_drop, teacher_weight, teachers
            )
            weights, memory = self.optimizer.step(weights, gradients, memory, number, rate)
            return weights, after, memory, loss

        stacks = (0, 0, 0, 0, 0, 0, 0, None)
        weights, seeds, memory, loss = jax.vmap(one, stacks)(
            weights, seeds, memory, index, *constants
        )
        total = jax.tree.map(lambda x, y: x + add * y, total, weights)
        return (weights, seeds, memory, losses + loss), total

    def _loss(self, weights, seeds, source, labels, r_drop, teacher_weight, teachers):
        """The loss of a batch, that of `SmoothedCrossEntropy` and `training.methods.teachers`, and
        the seeds after it."""
        target, twice = before(labels), (self.passes, 1)
        rows = jnp.tile(source, twice), jnp.tile(target, twice)
        logits, after = self._logits(weights, seeds, *rows, True)
        counts = token_weights(jnp.tile(labels, twice)).reshape(-1)  # [N]
        flat, logits = flattened(jnp.tile(labels, twice), logits)
        loss = smoothed_cross_entropy(flat, logits, self.smoothing)
        if self.passes == 2:
            loss = loss + r_drop / 2 * jnp.tile(symmetric_divergence(logits), 2)
        if teachers is not None:
            p = jnp.tile(self._taught(teachers, seeds, source, target), twice)
            theirs = jax.nn.logsumexp(logits, axis=-1) - jnp.sum(p * logits, axis=-1)
            loss = loss + teacher_weight * (theirs - loss)
        return jnp.sum(loss * counts) / jnp.maximum(jnp.sum(counts), 1e-9), after

    def _taught(self, teachers, seeds, source, target):
        """The mean of the teachers' distributions, float32 [N, V]."""

        def one(weights):
            logits, _ = self._logits(weights, seeds, source, target, False)
            return jax.nn.softmax(logits.astype("float32").reshape(-1, logits.shape[-1]))  # [N, V]

        return jax.lax.stop_gradient(jnp.mean(jax.vmap(one)(teachers), axis=0))

    def _logits(self, weights, seeds, source, target, training):
        inputs = {"source_ids": source, "target_ids": target}
        return self.model.stateless_call(weights, seeds, inputs, training=training)


def values(variables):
    return [variable.value for variable in variables]


def stacked(trees):
    """Stacks trees of arrays of one shape to a tree of arrays [trees, ...]."""
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *trees)


def sides(pairs, reverse):
    """Source and target, exchanged with `reverse`."""
    return [jnp.where(reverse, pairs[1 - n], pairs[n]) for n in (0, 1)]


def before(labels):
    """The target ids of labels [B, T]: bos, and the tokens before each label."""
    bos = jnp.full((len(labels), 1), BOS, labels.dtype)
    return jnp.concatenate([bos, jnp.where(labels[:, 1:] > 0, labels[:, :-1], 0)], axis=1)
