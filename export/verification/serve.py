"""Runs requests twice: through the C session, as a server does, and through Python's loader.

Warm-up requests run once, through the C session.
"""

import importlib.util
import itertools

import numpy as np
import tensorflow as tf

from ..capi.job import serve_calls
from ..capi.library import ServingError
from .graph import Graph, Signature, one_line
from .report import Answer, Report
from .warmup import of_warmup

# ({tensor name: array}, names of the tensors to fetch).
Call = tuple[dict[str, np.ndarray], list[str]]
# Seconds that the process may take to load and to run warm-up and requests, with or without XLA.
TIMEOUT = 1200


def serve(
    path, graph: Graph, feeds: dict, report: Report, xla: bool, warmup: list[Call] | None
) -> dict[str, list[Answer | None]]:
    """The answers of a fresh process without Python TensorFlow to each request; {} if it fails.

    First it runs the calls of `warmup`, as a server does. None: there are no warm-up requests.
    """
    first = warmup or []
    calls = [
        _call(graph.signatures[name], answer) for name, batch in feeds.items() for answer in batch
    ]
    try:
        results = iter(serve_calls(path, [*first, *calls], TIMEOUT, xla=xla))
    except ServingError as error:
        report.add("served", [said(error)], "")
        return {}
    cold = [
        said(of_warmup(number, result))
        for number, result in enumerate(itertools.islice(results, len(first)))
        if isinstance(result, ServingError)
    ]
    for name, batch in feeds.items():
        outputs = graph.signatures[name].outputs
        answers, faults = [], []
        for _ in batch:
            result = next(results)
            if isinstance(result, ServingError):
                faults.append(said(result))
                answers.append(None)
            else:
                answers.append({key: result[info.name] for key, info in outputs.items()})
        report.served[name] = answers
        report.add(f"served: {name}", _first(faults, batch), f"{len(batch)} requests")
    if warmup is not None:
        report.add("warm-up", cold, f"{len(warmup)} requests")
    return report.served


def _call(signature: Signature, feeds: Answer) -> Call:
    """Converts a request by input names into feeds and fetches by tensor names."""
    by_tensor = {info.name: feeds[key] for key, info in signature.inputs.items()}
    return by_tensor, sorted({info.name for info in signature.outputs.values()})


def serve_in_python(path, feeds: dict, report: Report) -> dict[str, list[Answer | None]]:
    """The answers to the same requests through `tf.saved_model.load`; {} if it does not load."""
    if importlib.util.find_spec("tensorflow_text"):
        import tensorflow_text  # noqa: F401  registers its ops
    answers: dict[str, list[Answer | None]] = {}
    try:
        with tf.device("CPU:0"):  # the served answers come from the CPU too
            loaded = tf.saved_model.load(str(path))
    except Exception as error:  # of any type: the check records that loading failed
        report.add("in Python", [f"{type(error).__name__}: {one_line(error)}"], "")
        return {}
    for name, batch in feeds.items():
        answers[name], faults = [], []
        for request in batch:
            try:
                with tf.device("CPU:0"):
                    inputs = {key: tf.constant(array) for key, array in request.items()}
                    outputs = loaded.signatures[name](**inputs)
                answers[name].append({key: tensor.numpy() for key, tensor in outputs.items()})
            except (tf.errors.OpError, ValueError, TypeError) as error:
                faults.append(f"{type(error).__name__}: {one_line(error)}")
                answers[name].append(None)
        report.add(f"in Python: {name}", _first(faults, batch), f"{len(batch)} requests")
    return answers


def said(error: ServingError) -> str:
    """The error in one line: its code and its message."""
    return f"{error.code_name}: {one_line(error)}"


def _first(faults: list[str], batch: list) -> list[str]:
    """The first fault with the number of faults: mostly all requests fail for the same reason."""
    return [f"{len(faults)} of {len(batch)} requests: {faults[0]}"] if faults else []
