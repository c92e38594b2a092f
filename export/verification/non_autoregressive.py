"""Compares a served non-autoregressive translator with the model."""

import numpy as np
import tensorflow as tf

from tfformer.config import BOS, PAD
from tfformer.inference.non_autoregressive import ParallelInference

from .compare import tolerance

# The number of target positions, if the model does not give one.
PLACES = 7


def compare(service, requests, report, run, options, progress):
    """Adds to the report whether the probabilities at all positions are those of the model."""
    progress("comparing with the model, place by place ...")
    texts = requests["serving_default"][0]["text"]
    ids = service.tokenizer.encode_source(tf.constant(texts))[:, : service.max_source_length]
    ids = ids.to_tensor(PAD)
    inference_layer, weights = service.fused_for(ids.shape[1] * service.model.places + PLACES)
    inference = ParallelInference(inference_layer, weights)
    with tf.device("CPU:0"):  # the served answers come from the CPU too
        memory = inference.start(ids)
        inputs, real = {"source_ids": ids}, np.ones([len(texts), PLACES], bool)
        if service.model.upsampling is not None:
            found = inference.logits_of_places(ids, memory)
            real = np.repeat(ids.numpy() != PAD, service.model.places, axis=1)
            expected = service.model(inputs, training=False)
        else:
            hidden = tf.fill(real.shape, BOS)
            found = inference.logits(hidden, memory)
            expected = service.model({**inputs, "target_ids": hidden}, training=False)[:, 1:]
    found, expected = (tf.nn.log_softmax(tf.cast(x, tf.float32)) for x in (found, expected))
    gaps = tf.abs(found - expected) / tf.maximum(1.0, tf.abs(expected))
    gaps = np.where(real, tf.reduce_max(gaps, axis=-1), 0.0).max(axis=1)
    faults = [
        f"text {row} differs by {gap:.2g}"
        for row, gap in enumerate(gaps)
        if not gap <= tolerance(service)  # NaN is a fault too
    ]
    report.add("the model, place by place", faults, f"{len(texts)} texts")
