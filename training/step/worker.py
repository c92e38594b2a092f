"""Determines from TF_CONFIG which of several workers this process is, without TensorFlow."""

import json
import os


class WorkerError(RuntimeError):
    """Another worker is gone, or has failed."""


def is_chief(strategy):
    """Whether this process is the one that writes: with `multiworker` the worker of type "chief",
    or else the first one. A TF_CONFIG that does not list this worker is a ValueError."""
    if strategy != "multiworker":
        return True
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = task["type"], task["index"]
        if kind not in ("chief", "worker") or index < 0:
            raise ValueError
        cluster[kind][index]
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(
            "strategy multiworker needs the environment variable TF_CONFIG, "
            '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, '
            f"got {text!r}"
        ) from error
    return kind == "chief" or (index == 0 and "chief" not in cluster)
