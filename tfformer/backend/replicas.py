"""Operations across the replicas of a `tf.distribute` strategy. Only for TensorFlow."""

import tensorflow as tf


def total(value):
    """The sum of a tensor over the replicas; outside a strategy, the tensor itself."""
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return value
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, value)
