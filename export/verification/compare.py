"""Compares the served answers with those of Python, and of the service in this process."""

import numpy as np
import tensorflow as tf

from .report import Answer, Report

TOLERANCE = 1e-4
HALF = 0.05  # the tolerance for products in bfloat16, which has 8 bits of precision


def compare_python(served: dict, python: dict, report: Report):
    """Adds to the report whether `tf.saved_model.load` gives the same answers."""
    for name, answers in served.items():
        pairs = zip(answers, python[name], strict=True)
        pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
        faults = [fault for a, b in pairs for fault in differences(a, b)]
        if pairs:
            report.add(f"agreement: {name}", faults, f"{len(pairs)} answers")


def differences(served: Answer, python: Answer) -> list[str]:
    """The differences of two answers to one request; [] if they agree."""
    faults = []
    for key, ours in served.items():
        theirs = np.asarray(python[key], dtype=object if ours.dtype == object else None)
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            shapes = f"{ours.dtype} {ours.shape}, in Python {theirs.dtype} {theirs.shape}"
            faults.append(f"{key} served as {shapes}")
        elif tf.as_dtype(ours.dtype).is_floating:
            ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
            if not np.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
                gap = np.nanmax(np.abs(ours - theirs))
                faults.append(f"{key} differs by {gap:.2g}, more than {TOLERANCE:g}")
        elif not np.array_equal(ours, theirs):
            faults.append(f"{key} differs in {np.sum(ours != theirs)} of {ours.size} places")
    return faults


def answer(service, name, request):
    """The answer of the service in this process to a request: {output: array}."""
    function = service.functions[name]
    specs = {spec.name: spec.dtype for spec in function.input_signature}
    inputs = {key: tf.constant(value, specs[key]) for key, value in request.items()}
    with tf.device("CPU:0"):  # the served answers come from the CPU too
        return {key: value.numpy() for key, value in function(**inputs).items()}


def answers_to(service, report, name, requests):
    """The served answers to the requests of a signature; if not exported, those from here."""
    served = report.served.get(name)
    return [answer(service, name, one) for one in requests[name]] if served is None else served


def tolerance(service):
    """How far a number of the service may be from the model's."""
    return HALF if service.dtype == "bfloat16" else TOLERANCE


def compare_in_process(service, requests, report):
    """Adds to the report whether the service in this process gives the same answers."""
    for name, asked in requests.items():
        pairs = zip(asked, report.served[name], strict=True)
        faults = [
            fault
            for request, served in pairs
            for fault in differences(served, answer(service, name, request))
        ]
        report.add(f"in process: {name}", faults, f"{len(asked)} answers")
