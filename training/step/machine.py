"""Describes what a measured figure belongs to: the machine, the versions, the commit."""

import os
import platform
import subprocess
from pathlib import Path

from tfformer import checkout

CHECKOUT = checkout.root()
# Instructions that determine the speed of a matrix product, with their names in /proc/cpuinfo.
INSTRUCTIONS = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16",
)  # fmt: skip


def cores():
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe():
    """Facts about this machine: processor, usable cores, instructions, memory in GiB, system."""
    facts = {}
    for line in lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    flags = facts.get("flags", "").split()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": facts.get("model name") or platform.machine(),
        "cores": cores(),
        "instructions": [name for name in INSTRUCTIONS if name in flags],
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(),
    }


def sentence(machine):
    """The result of `describe` as one line; a list "gpus" of names is included if present."""
    has = ", ".join(machine["instructions"]) or "none of " + ", ".join(INSTRUCTIONS)
    names = machine.get("gpus", [])
    gpus = "".join(f"{names.count(name)} x {name}, " for name in dict.fromkeys(names))
    return (
        f"{gpus}{machine['processor']}, {machine['cores']} cores ({has}), "
        f"{machine['memory_gib']:g} GiB, {machine['system']}"
    )


def gpus():
    """The names of the GPUs that TensorFlow sees."""
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(device) for device in devices]
    return [detail.get("device_name", "GPU") for detail in details]


def has_bfloat16():
    """Whether training in bfloat16 is faster here than in float32.

    True on a TPU, on GPUs of compute capability 8.0 (Ampere) or more, and on a processor with AMX.
    """
    import tensorflow as tf

    if tf.config.list_logical_devices("TPU"):
        return True
    if gpus := tf.config.list_physical_devices("GPU"):
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        return all(detail.get("compute_capability", (0, 0)) >= (8, 0) for detail in details)
    return "amx_bf16" in describe()["instructions"]


def versions():
    """The versions of Python, TensorFlow, Keras and tfformer, by name."""
    import keras
    import tensorflow as tf

    import tfformer

    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "tfformer": tfformer.__version__,
    }


def commit(folder=CHECKOUT):
    """The commit of a checkout, with "-dirty" appended if a file has changed, or None."""
    # Without its own .git, git would use that of a parent folder.
    if folder is None or not (Path(folder) / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run([*command, "--exclude=*"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def lines(path):
    """The lines of a file in /proc; an empty list if the file does not exist."""
    try:
        return Path(path).read_text().splitlines()
    except OSError:  # not Linux
        return []
