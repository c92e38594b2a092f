"""Compares the served answers of an encoder-only model with the Keras model."""

import numpy as np
import tensorflow as tf

from .compare import answers_to, tolerance


def compare(service, requests, report, run, options, progress):
    """Adds to the report whether the served numbers are those of the model."""
    progress("comparing with the model itself ...")
    faults, count = [], 0
    for name, signature in service.by_model().items():
        answers = answers_to(service, report, name, requests)
        for request, served in zip(requests[name], answers, strict=True):
            given = {key: tf.constant(value) for key, value in request.items()}
            with tf.device("CPU:0"):  # the served answers come from the CPU too
                expected = signature.function(**given)
            for key, value in expected.items():
                if value.dtype.is_floating and not _is_near(
                    served[key], value.numpy(), tolerance(service)
                ):
                    faults.append(f"{name}: {key} is not the model's")
            count += 1
    report.add("the model itself", faults, f"{count} answers")


def _is_near(served, expected, maximum):
    """Whether numbers differ by at most `maximum` times the largest expected one, or times 1."""
    largest = max(1.0, np.max(np.abs(expected), initial=0.0))
    return served.shape == expected.shape and bool(
        np.all(np.abs(served - expected) <= maximum * largest)
    )
