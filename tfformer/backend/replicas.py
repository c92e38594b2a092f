"""What a `tf.distribute` strategy's replicas have to do together. TensorFlow alone has it."""

import tensorflow as tf


def total(value):
    """The sum of a tensor over the replicas; outside of a strategy, the tensor."""
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return value
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, value)
