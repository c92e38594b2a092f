r"""Distributes a training over devices and machines: data parallel, with `tf.distribute`.

    none         one device
    mirrored     all GPUs of this machine; without one, all its logical CPUs (usually one)
    multiworker  several processes, each with its GPUs or its CPU, listed in the environment
                 variable TF_CONFIG
    tpu          all cores of the TPU of this machine, or of the one in TPU_NAME

The strategy does not change the pairs of a batch, the normalisation of its loss or the number of
steps. So a run may be resumed with another strategy, or on more machines.

Start all workers with the same command and a TF_CONFIG that differs only in "index". The
run directory must be on a shared disk. Two workers on one machine:

    for INDEX in 0 1; do
      TF_CONFIG='{"cluster": {"worker": ["localhost:4001", "localhost:4002"]},
                  "task": {"type": "worker", "index": '$INDEX'}}' \
      tfformer train dates --run runs/dates --strategy multiworker &
    done; wait

The first worker (or the one of type "chief") prepares, writes, validates and prints. Decisions that
depend on one machine, such as its clock or a signal, are made together: all workers stop after the
same step.
"""

import contextlib

import tensorflow as tf

from .worker import WorkerError, is_chief

# The errors that TensorFlow raises when another process has ended.
GONE = (
    tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError,
    tf.errors.InternalError, tf.errors.UnavailableError,
)  # fmt: skip


class Strategy:
    """A distribution strategy, `"none"`, `"mirrored"`, `"multiworker"` or `"tpu"`.

    Create it before TensorFlow computes anything. Workers then wait until all have started.

    Attributes:
        scope: a function that returns a context; create models and optimizers inside it.
        replicas: R, the devices of all workers together.
        is_none: whether there is no strategy and one device trains.
        several: whether there may be other workers.
        is_chief: whether this process writes and prints.

    Raises:
        ValueError: something that the strategy needs is missing; the message says what.
    """

    def __init__(self, name="none"):
        self.is_chief, self.several = is_chief(name), name == "multiworker"
        self.is_none = name == "none"
        make = {
            "none": tf.distribute.get_strategy,
            "mirrored": tf.distribute.MirroredStrategy,
            "multiworker": tf.distribute.MultiWorkerMirroredStrategy,
            "tpu": _tpu,
        }[name]
        try:
            self.distribute = make()
        except (RuntimeError, tf.errors.OpError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(f"strategy {name} cannot begin: {reason}") from error
        self.scope = self.distribute.scope
        self.replicas = self.distribute.num_replicas_in_sync

    def dataset(self, batches, epoch=0, skip=0):
        """`batches.dataset(epoch, skip)`, in which each replica gets its shard of every batch."""
        if self.is_none:
            return batches.dataset(epoch, skip)

        def own(context):
            mine = context.num_replicas_in_sync // context.num_input_pipelines
            first = context.input_pipeline_id * mine
            return batches.dataset(epoch, skip, range(first, first + mine), self.replicas)

        # All workers run the same number of steps, so they need not check at each step whether the
        # others continue.
        self.distribute.extended.experimental_enable_get_next_as_optional = False
        return self.distribute.distribute_datasets_from_function(own)

    def spread_dropout(self, model):
        """Gives each replica its own random numbers, for a model with the same seeds on all.

        Keras would have all replicas drop the same positions. Replica 0 keeps its seeds, and a
        checkpoint stores those. So call this again after restoring a checkpoint.
        """
        states = [v.value for v in model.variables if v.path.endswith("seed_generator_state")]

        @tf.function
        def shift():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            for state in states:
                state.assign_add([tf.cast(number, state.dtype), 0])

        if self.replicas > 1:
            self.distribute.run(shift)

    def chiefs(self, value):
        """The chief's `value`, returned in all workers. The workers wait for each other."""
        return float(self._sum(value if self.is_chief else 0.0)) if self.several else value

    def any(self, flag):
        """Whether any worker passes a true `flag`. The workers wait for each other."""
        return self._sum(1.0 if flag else 0.0) > 0 if self.several else bool(flag)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float64)])
    def _sum(self, value):
        """The sum of `value` over the workers; the first replica of each contributes its value."""

        def own():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            first = replica % len(self.distribute.extended.worker_devices) == 0
            return tf.where(first, value, tf.zeros_like(value))

        return self.distribute.reduce("SUM", self.distribute.run(own), axis=None)

    def chief_first(self, work):
        """Runs `work()` in the chief only; all workers continue when it has finished.

        Raises:
            the error of `work`, in the chief; `WorkerError` in the others.
        """
        error = None
        if self.is_chief:
            try:
                work()
            except BaseException as failure:  # also Ctrl-C: the others must be told
                error = failure
        if self.any(error) and error is None:
            raise WorkerError("the chief has failed: see its output")
        if error:
            raise error

    @contextlib.contextmanager
    def together(self):
        """A context that raises `WorkerError` if another worker is gone, and `MemoryError` if
        memory runs out."""
        try:
            yield
        except tf.errors.ResourceExhaustedError as error:
            reason = str(error).strip().splitlines()[0]
            raise MemoryError(
                f"{reason}: to use less memory, give a larger --accumulate, which --resume allows, "
                "or in a new run a smaller --batch-tokens"
            ) from error
        except GONE as error:
            if not self.several:
                raise
            kind = type(error).__name__
            raise WorkerError(
                f"another worker is gone ({kind}): start all of them again with --resume"
            ) from error


def _tpu():
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(f"strategy tpu needs a TPU, and found none: {error}") from error
