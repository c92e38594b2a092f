r"""How a training is spread over devices and machines: data parallel, by `tf.distribute`.

    none         one device
    mirrored     all GPUs of this machine; without one, all its logical CPUs (usually one)
    multiworker  several processes, each with its GPUs or its CPU, that the environment variable
                 TF_CONFIG names to each other
    tpu          all cores of the TPU of this machine, or of that which TPU_NAME names

Which pairs a batch has, how its loss is normalised and how many steps there are depends on none of
it. So a run may be resumed with another strategy, or on more machines.

All workers are started with the same command, and a TF_CONFIG that differs in "index" alone. The
run directory must be on a disk that they share. Two on one machine:

    for INDEX in 0 1; do
      TF_CONFIG='{"cluster": {"worker": ["localhost:4001", "localhost:4002"]},
                  "task": {"type": "worker", "index": '$INDEX'}}' \
      python -m training.train dates --run runs/dates --strategy multiworker &
    done; wait

The first of them (or the one of type "chief") prepares, writes, validates and speaks. Whatever
depends on one machine alone, as its clock or a signal, is decided in common: all workers stop
after the same step.
"""

import contextlib

import tensorflow as tf

from training.step.worker import WorkerError, is_chief

# What TensorFlow says when another process has ended.
GONE = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)


class Strategy:
    """A strategy by its name.

    To be made before TensorFlow computes anything. Workers then wait until all are there.

    Args:
        name: `"none"` (default), `"mirrored"`, `"multiworker"` or `"tpu"`.

    Attributes:
        scope: a function; in the context that it gives, models and optimizers are to be made.
        replicas: R, the devices of all workers together.
        is_none: whether there is no strategy, one device being enough.
        several: whether there may be other workers.
        is_chief: whether this process writes and speaks.

    Raises:
        ValueError: the strategy needs what is not here; it says what.
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
        """`batches.dataset(epoch, skip)`, each replica getting its shard of every batch."""
        if self.is_none:
            return batches.dataset(epoch, skip)

        def own(context):
            mine = context.num_replicas_in_sync // context.num_input_pipelines
            first = context.input_pipeline_id * mine
            return batches.dataset(epoch, skip, range(first, first + mine), self.replicas)

        # All workers make as many steps: none has to ask the others at each if they go on.
        self.distribute.extended.experimental_enable_get_next_as_optional = False
        return self.distribute.distribute_datasets_from_function(own)

    def spread_dropout(self, model):
        """Gives each replica random numbers of its own, for a model whose seeds are alike.

        Keras would have all replicas drop the same places. Replica 0 keeps the seeds that it has,
        and a checkpoint has those: so this is to be done again when one was restored.
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
        """The number that the chief calls this with, in all workers. They wait for each other."""
        return float(self._sum(value if self.is_chief else 0.0)) if self.several else value

    def any(self, flag):
        """Whether any worker calls this with a true `flag`. They wait for each other."""
        return self._sum(1.0 if flag else 0.0) > 0 if self.several else bool(flag)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float64)])
    def _sum(self, value):
        """Over the workers: each one's first replica gives its value."""

        def own():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            first = replica % len(self.distribute.extended.worker_devices) == 0
            return tf.where(first, value, tf.zeros_like(value))

        return self.distribute.reduce("SUM", self.distribute.run(own), axis=None)

    def chief_first(self, work):
        """Has the chief do `work()`, and no other worker; all go on when it is done.

        Raises:
            what `work` raises, in the chief; `WorkerError` in the others.
        """
        error = None
        if self.is_chief:
            try:
                work()
            except BaseException as failure:  # Ctrl-C too: the others must hear of it
                error = failure
        if self.any(error) and error is None:
            raise WorkerError("the chief has failed: see what it says")
        if error:
            raise error

    @contextlib.contextmanager
    def together(self):
        """Inside, that another worker is gone is a `WorkerError`, and no room a `MemoryError`."""
        try:
            yield
        except tf.errors.ResourceExhaustedError as error:
            reason = str(error).strip().splitlines()[0]
            raise MemoryError(
                f"{reason}: a larger --accumulate takes less memory, with --resume too, and so do "
                "fewer --batch-tokens in a new run"
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
