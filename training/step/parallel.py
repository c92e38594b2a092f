"""Computes a batch in parts: on several replicas or cores in parallel, or one part after another.

The result is the same except for rounding. The loss of a batch is the mean over its real tokens,
and parts have different numbers of tokens. So each part returns sums. Gradients and metrics are
computed from the total; in a mean of means, the weight of a token would depend on its part.

Keras 3 does most of a step under `tf.distribute`. This module has everything that must differ, and
all private hooks of Keras that this needs; `test_parallel.py` fails if Keras changes them.
"""

import functools

import keras
import tensorflow as tf
from keras import tree

from tfformer.backend import replicas
from tfformer.layers.masks import padding_mask

from ..methods.method import Methods, Noted

NO_METHODS = Methods()


def real(labels):
    """1 at the real tokens of labels, 0 at padding: float32, of the same shape."""
    return tf.cast(padding_mask(labels), tf.float32)


@functools.cache
def in_parts(kind):
    """A subclass of the Keras model `kind` with the training step of `Parts`.

    Its layers, and the names and order of its variables, are those of `kind`.
    """
    return type(f"Parallel{kind.__name__}", (Parts, kind), {"__doc__": Parts.__doc__})


class Parts:
    """A model whose training step adds up the parts of a batch before it divides.

    Compile it with a loss whose `call` returns the loss of each label, in the shape of the labels,
    as `SmoothedCrossEntropy` does, and with the `Adam` of `training.step.adam`.

    Args:
        args, kwargs: those of the model.
        parts: number of parts that a replica computes one after the other, so that it needs the
            memory of one part.
        cores: number of shares of each part that are computed in parallel. The number of rows of a
            replica must be a multiple of `parts * cores`.
        passes: number of copies of its rows in a batch, one after the other; of a part, too.
        without_padding: a function of (inputs, labels, passes) that removes the padding of a part,
            such as that of `tfformer.layers.packing`. Default None: padding stays.
        methods: `Methods`, the additions of training methods to a step.

    Attributes:
        stop: a variable of this process; if it is not zero, the process requests all of them to
            stop. The logs of each step have the sum over all replicas as `"stop"`.
    """

    def __init__(
        self, *args, parts=1, cores=1, passes=1, without_padding=None, methods=NO_METHODS, **kwargs
    ):
        self.stop = tf.Variable(0.0, trainable=False)
        # (Once its weights exist, a model accepts no more metrics.)
        self.noted = tuple(Noted(name) for name in methods.notes)
        super().__init__(*args, **kwargs)
        self.batch_parts, self.cores, self.passes = parts, cores, passes
        self.without_padding, self.methods = without_padding, methods

    def train_step(self, data):
        inputs, labels = data
        total, tokens, *gradients = replicas.total(self._sums(inputs, labels))
        tokens = tf.maximum(tokens, 1.0)
        means = [gradient / tokens for gradient in gradients]
        self.optimizer.apply_gradients(zip(means, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(total / tokens, sample_weight=tf.shape(labels)[0])
        return self.get_metrics_result()

    def _sums(self, inputs, labels):
        """For this replica's rows: the sum of the loss over the tokens, the number of tokens, and
        the gradients of that sum."""
        if self.batch_parts == self.cores == 1:
            return self._part(inputs, labels)

        def split(ids):
            length = tf.shape(ids)[1]
            copies = tf.reshape(ids, [self.passes, self.batch_parts, self.cores, -1, length])
            copies = tf.transpose(copies, [1, 2, 0, 3, 4])
            return tf.reshape(copies, [self.batch_parts, self.cores, -1, length])

        batch = tree.map_structure(split, (inputs, labels))
        if self.batch_parts == 1:
            return self._side_by_side(0, batch)

        def add(n, sums):
            new = self._side_by_side(n, batch)
            return n + 1, [a + b for a, b in zip(sums, new, strict=True)]

        zeros = [0.0, 0.0, *(tf.zeros(v.shape, v.dtype) for v in self.trainable_variables)]
        # A loop instead of K copies: TensorFlow would run copies in parallel and need all their
        # memory.
        _, sums = tf.while_loop(
            lambda n, _: n < self.batch_parts, add, (0, zeros), parallel_iterations=1
        )
        return sums

    def _side_by_side(self, n, batch):
        """The sum of the results of `_part` over the shares of the n-th part, one for each core.

        The shares wait for each other only in stateful operations: the seeds of dropout and the
        sums of metrics. TensorFlow runs these in order, so a run can be repeated.
        """
        shares = [
            self._part(*tree.map_structure(lambda ids, core=core: ids[n, core], batch))
            for core in range(self.cores)
        ]
        return [tf.add_n(each) for each in zip(*shares, strict=True)]

    def _part(self, inputs, labels):
        weights = self.trainable_variables
        # All parts have one shape, so this is the same for all. Half-precision sums would overflow.
        size = tf.cast(tf.size(labels), tf.float32)
        counted = None
        if self.methods.first_pass:
            seed = self._seed_of(labels)
            inputs, labels, counted = self.methods.first_pass(self, inputs, labels, seed)
        if self.without_padding:
            inputs, labels = self.without_padding(inputs, labels, self.passes)
            if counted is not None:
                counted = tf.gather(tf.reshape(counted, [-1]), inputs["target_places"])  # [M]
        counted = real(labels) if counted is None else counted * real(labels)
        with tf.GradientTape() as tape:
            logits, penalty = self._asked(inputs)
            loss = self.loss.call(labels, logits)
            if self.methods.lesson:
                loss = self.methods.lesson(loss, logits, inputs, self.passes)
            total = tf.reduce_sum(loss * counted) + penalty
            scaled = self.optimizer.scale_loss(total / size)
        for metric in self.metrics:
            if metric.name != "loss":
                metric.update_state(labels, logits)
        gradients = tape.gradient(scaled, weights, unconnected_gradients="zero")
        # The gradient of a gather is sparse; only dense gradients can be added.
        gradients = [size * tf.convert_to_tensor(gradient) for gradient in gradients]
        return [total, tf.reduce_sum(real(labels)), *gradients]

    def _asked(self, inputs):
        """The logits, and the penalty that training methods add to the loss."""
        training = not self.methods.as_served
        if not self.methods.penalty:
            return self(inputs, training=training), 0.0
        logits, attention = self.with_attention(inputs, training=training)
        return logits, self.methods.penalty(attention, inputs)

    def _seed_of(self, labels):
        """A seed, integers [2], that differs for each step and each part. It depends only on values
        that a checkpoint restores."""
        sums = tf.reduce_sum(tf.cast(labels, tf.int64))
        return tf.stack([tf.cast(self.optimizer.iterations, tf.int64), sums])

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Does nothing: Keras would read a batch and reduce its ids over the replicas."""

    def _make_function(self, step_function):
        """One step on all replicas; its logs are computed over all tokens.

        Keras would average the metrics of the replicas, which is a mean of means, and it fails with
        several workers. The variables of metrics are sums, so here they are added, all in one
        reduction.
        """
        strategy = self.distribute_strategy

        def replica_step(data):
            step_function(data)
            return tf.stack([*(variable.value for variable in self.metrics_variables), self.stop])

        def step(data):
            sums = strategy.reduce("SUM", strategy.run(replica_step, args=(data,)), axis=None)
            *sums, stop = tf.unstack(sums)
            with keras.StatelessScope(list(zip(self.metrics_variables, sums, strict=True))):
                return {**self.get_metrics_result(), "stop": stop}

        # One graph for the shapes of all batches, from the iterator's specification. A graph for
        # each shape would round differently, and a resumed run meets the shapes in another order.
        of_iterator = tf.function(lambda iterator: step(next(iterator)))
        of_batch = tf.function(step)
        iterators = (tf.data.Iterator, tf.distribute.DistributedIterator)

        def function(iterator):
            if isinstance(iterator, iterators):
                return of_iterator(iterator)
            return of_batch(next(iterator))  # called by `test_on_batch`

        return function
