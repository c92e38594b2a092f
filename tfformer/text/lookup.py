"""A table in the graph from strings or numbers to int32."""

import tensorflow as tf


def lookup_table(keys, values, default):
    """A table whose `lookup` gives the int32 value of each key, and `default` for any other."""
    values = tf.constant(list(values), tf.int32)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default)
