"""Models of one configuration that are trained in one step, on JAX."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import keras
import numpy as np

from benchmarks.on_jax.optimizer import Optimizer
from benchmarks.on_jax.search import beam_search
from tfformer.config import BOS, PAD
from tfformer.distances import loss_of
from tfformer.files import RunError
from tfformer.loss import flattened, smoothed_cross_entropy, symmetric_divergence, token_weights
from tfformer.models import ENCODER_DECODER, FAMILIES
from tfformer.run import set_weights, variable_name
from training.methods.guided_attention import GuidedAttention
from training.methods.own_tokens import mixed, never, replaced

VALIDATED = 768  # pairs at once, of all models together
SEARCHED = 512  # the same for a search


class Models:
    """Models that differ in their weights, dropout, batches, learning rates and options.

    Their arrays are stacked: [models, ...].

    Args:
        settings: "model", the configuration; "recipe", the recipe's settings; and "family", the
            model's. Default: an encoder-decoder.
        options: a dict for each model: its `seed`; `reverse`, whether source and target are
            exchanged; `r_drop`, the weight of R-Drop; `teacher_weight`, that of the teachers. With
            scheduled sampling, also `shares`, of the tokens that are replaced in each step.
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
        self.recipe, self.passes = recipe, passes = settings["recipe"], passes
        self.loss = loss_of(recipe["objective"], recipe["smoothing"])
        self.penalty = None
        if recipe["guided_attention"]:
            self.penalty = GuidedAttention(recipe["guided_attention"], recipe["guided_heads"])
        family = FAMILIES[settings.get("family", ENCODER_DECODER)]
        config = family.read_configuration(settings["model"])
        weights, seeds = [], []
        for one in options:
            keras.utils.set_random_seed(one["seed"])
            self.model = family.model(config, dtype=dtype)
            weights.append(values(self.model.trainable_variables))
            seeds.append(values(self.model.non_trainable_variables))
        self.names = [variable_name(v) for v in self.model.trainable_variables]
        self.optimizer = Optimizer(
            recipe["optimizer"],
            self.model,
            recipe["weight_decay"],
            recipe["clip_norm"],
            self.model.compute_dtype,
        )
        weights = stacked(weights)
        memory = jax.vmap(self.optimizer.start)(weights)
        self.state = weights, stacked(seeds), memory, jnp.zeros(len(options))
        self.total = jax.tree.map(jnp.zeros_like, weights)
        self.size = len(options)
        kinds = {"seed": "int32", "reverse": "int32", "r_drop": "float32"}
        kinds |= {"teacher_weight": "float32"}
        kinds |= {"shares": "float32"} if recipe["scheduled_sampling"] else {}
        self.options = {
            name: jnp.array([one[name] for one in options], kind) for name, kind in kinds.items()
        }
        read = []
        for path, arrays in teachers.items():
            try:
                set_weights(self.model, {n: x.astype("float32") for n, x in arrays.items()})
            except RunError as error:
                raise RunError(f"{path}: {error}") from error
            read.append(values(self.model.trainable_variables))
        self.teachers = stacked(read) if read else None
        self.ids = jnp.asarray(ids)

    def compile(self, batches):
        """Compiles the step of each bucket of `Batches` in parallel."""
        number, rate = jnp.float32(0), jnp.zeros(self.size)

        def lower(bucket, rows):
            def step(*arguments):
                return self._step(int(batches.edges[bucket]), *arguments)

            index = jax.ShapeDtypeStruct((self.size, rows, 3), "int32")
            rest = self.ids, self.options, self.teachers, index, number, rate, number
            return jax.jit(step, donate_argnums=(0, 1)).lower(self.state, self.total, *rest)

        lowered = [lower(*bucket) for bucket in batches.rows.items()]
        with ThreadPoolExecutor(len(lowered)) as pool:
            compiled = pool.map(lambda step: step.compile(), lowered)
            self.steps = dict(zip(batches.rows, compiled, strict=True))

    def step(self, bucket, index, number, rate, add):
        """Makes a step of all models.

        Args:
            bucket, index: a batch of `Batches.epoch`.
            number: the number of the step, from 0.
            rate: the learning rate, one number or [models].
            add: 1 to add the new weights to the average, otherwise 0.
        """
        rate = np.broadcast_to(np.float32(rate), self.size)
        rest = self.ids, self.options, self.teachers, index, np.float32(number), rate
        found = self.steps[bucket](self.state, self.total, *rest, np.float32(add))
        self.state, self.total = found

    def losses(self):
        """The sums of the losses of all steps so far, [models]."""
        return np.asarray(self.state[3])

    def validation(self, ids):
        """A function that returns the perplexity of each model on int16 [2, 1, M, S], with its own
        weights or with others."""

        def part(weights, seeds, pairs, reverse):
            source, labels = sides(pairs, reverse)
            logits = self._outputs(weights, seeds, source, before(labels))
            flat, logits = flattened(labels, logits)
            counts = token_weights(labels).reshape(-1)
            return jnp.sum(smoothed_cross_entropy(flat, logits, 0.0) * counts), jnp.sum(counts)

        part = jax.jit(jax.vmap(part, (0, 0, None, 0)))
        pairs = ids[:, 0].astype("int32")
        step = min(pairs.shape[1], max(1, VALIDATED // self.size))
        missing = -pairs.shape[1] % step
        pairs = jnp.asarray(np.pad(pairs, ((0, 0), (0, missing), (0, 0))))

        def perplexities(weights=None):
            own, seeds = self.state[:2]
            weights = own if weights is None else weights
            parts = [
                part(weights, seeds, pairs[:, n : n + step], self.options["reverse"])
                for n in range(0, pairs.shape[1], step)
            ]
            return np.exp(sum(p[0] for p in parts) / sum(p[1] for p in parts)).tolist()

        return perplexities

    def search(self, source_ids, width, length_penalty, longest, limit):
        """A function that returns the translations of int16 [M, S] by each model, int16
        [models, M, longest], with its own weights or with others. For the other arguments, see
        `beam_search`."""

        def part(weights, seeds, source):
            def logits(source, target):
                return self._outputs(weights, seeds, source, target)

            return beam_search(logits, source, width, length_penalty, longest, limit)

        part = jax.jit(jax.vmap(part, (0, 0, None)))
        step = min(len(source_ids), max(1, SEARCHED // self.size))
        order = np.argsort(np.count_nonzero(source_ids, axis=1), kind="stable")
        sources = np.pad(source_ids[order], ((0, -len(order) % step), (0, 0)))

        def translations(weights=None):
            own, seeds = self.state[:2]
            weights = own if weights is None else weights
            parts = [
                part(weights, seeds, jnp.asarray(sources[n : n + step], "int32"))
                for n in range(0, len(sources), step)
            ]
            found = np.empty((self.size, len(order), longest), "int16")
            found[:, order] = np.concatenate(parts, axis=1)[:, : len(order)]
            return found

        return translations

    def _step(self, edge, state, total, ids, options, teachers, index, number, rate, add):
        """The state after a batch of rows of `edge` tokens, and the sum of weights."""
        weights, seeds, memory, losses = state

        def one(weights, seeds, memory, index, options, rate):
            pairs = [
                jnp.where(index[:, :1] < 0, 0, ids[side, index[:, 1 + side], index[:, 0], :edge])
                for side in (0, 1)
            ]
            batch = [side.astype("int32") for side in sides(pairs, options["reverse"])]
            (loss, after), gradients = jax.value_and_grad(self._loss, has_aux=True)(
                weights, seeds, *batch, options, teachers, number
            )
            weights, memory = self.optimizer.step(weights, gradients, memory, number, rate)
            return weights, after, memory, loss

        weights, seeds, memory, loss = jax.vmap(one)(weights, seeds, memory, index, options, rate)
        total = jax.tree.map(lambda x, y: x + add * y, total, weights)
        return (weights, seeds, memory, losses + loss), total

    def _loss(self, weights, seeds, source, labels, options, teachers, number):
        """The loss of a batch, that of the recipe's objective and `training.methods`, and the seeds
        after it."""
        target, twice = before(labels), (self.passes, 1)
        inputs = {"source_ids": jnp.tile(source, twice), "target_ids": jnp.tile(target, twice)}
        if self.recipe["scheduled_sampling"]:
            inputs = self._sampled(jax.lax.stop_gradient(weights), seeds, inputs, options, number)
        logits, attention, after = self._forward(weights, seeds, inputs, True)
        counts = token_weights(jnp.tile(labels, twice)).reshape(-1)  # [N]
        flat, logits = flattened(jnp.tile(labels, twice), logits)
        loss = self.loss.of_tokens(flat, logits)
        if self.passes == 2:
            loss = loss + options["r_drop"] / 2 * jnp.tile(symmetric_divergence(logits), 2)
        if teachers is not None:
            p = jnp.tile(self._taught(teachers, seeds, source, target), twice)
            theirs = jax.nn.logsumexp(logits, axis=-1) - jnp.sum(p * logits, axis=-1)
            loss = loss + options["teacher_weight"] * (theirs - loss)
        total = jnp.sum(loss * counts)
        if self.penalty:
            total = total + self.penalty(attention, inputs)
        return total / jnp.maximum(jnp.sum(counts), 1e-9), after

    def _sampled(self, weights, seeds, inputs, options, number):
        """The inputs after the passes of `training.methods.scheduled_sampling`."""
        recipe, ids, read = self.recipe, inputs["target_ids"], inputs
        step = number.astype("int32")
        key = jax.random.fold_in(jax.random.key(options["seed"]), step)
        for n in range(recipe["scheduled_sampling_passes"] - 1):
            choose, draw = jax.random.split(jax.random.fold_in(key, n))
            logits = self._forward(weights, seeds, read, False)[0][:, :-1]
            logits = logits.astype("float32") + never(logits.shape[-1])
            inside = jax.random.uniform(choose, ids[:, 1:].shape) < options["shares"][step]
            inside &= ids[:, 1:] != PAD
            if recipe["scheduled_sampling_by"] == "mixed":
                read, _ = mixed(inputs, logits, inside)
                continue
            own = jnp.argmax(logits, axis=-1)
            if recipe["scheduled_sampling_by"] == "sampled":
                own = jax.random.categorical(draw, logits)
            read = inputs | {"target_ids": replaced(ids, own, inside)}
        return read

    def _taught(self, teachers, seeds, source, target):
        """The mean of the teachers' distributions, float32 [N, V]."""

        def one(weights):
            logits = self._outputs(weights, seeds, source, target)
            return jax.nn.softmax(logits.astype("float32").reshape(-1, logits.shape[-1]))  # [N, V]

        return jax.lax.stop_gradient(jnp.mean(jax.vmap(one)(teachers), axis=0))

    def _outputs(self, weights, seeds, source, target):
        """The logits without dropout."""
        inputs = {"source_ids": source, "target_ids": target}
        return self._forward(weights, seeds, inputs, False)[0]

    def _forward(self, weights, seeds, inputs, training):
        """The logits, the attention weights for a penalty or None, and the seeds after it."""
        model = self.model
        if self.penalty is None:
            logits, after = model.stateless_call(weights, seeds, inputs, training=training)
            return logits, None, after
        known = zip(model.trainable_variables, weights, strict=True)
        with keras.StatelessScope(
            [*known, *zip(model.non_trainable_variables, seeds, strict=True)]
        ) as scope:
            logits, attention = model.with_attention(inputs, training=training)
        after = [scope.get_current_value(variable) for variable in model.non_trainable_variables]
        return logits, attention, after


def values(variables):
    return [variable.value for variable in variables]


def stacked(trees):
    """Stacks trees of arrays of one shape to a tree of arrays [trees, ...]."""
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *trees)


def chosen(which, first, second):
    """Stacked arrays: of the models where `which`, boolean [models], is True, those of `first`."""
    return [
        jnp.where(which.reshape(-1, *[1] * (x.ndim - 1)), x, y)
        for x, y in zip(first, second, strict=True)
    ]


def sides(pairs, reverse):
    """Source and target, exchanged with `reverse`."""
    return [jnp.where(reverse, pairs[1 - n], pairs[n]) for n in (0, 1)]


def before(labels):
    """The target ids of labels [B, T]: bos, and the tokens before each label."""
    bos = jnp.full((len(labels), 1), BOS, labels.dtype)
    return jnp.concatenate([bos, jnp.where(labels[:, 1:] > 0, labels[:, :-1], 0)], axis=1)
