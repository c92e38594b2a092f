"""The machine that a figure belongs to."""

import os
import platform
from pathlib import Path

# Instructions that decide how fast a matrix product is, as /proc/cpuinfo calls them.
INSTRUCTIONS = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16",
)  # fmt: skip


def describe():
    """Its processor, the cores this process may use, instructions, memory in GiB, system."""
    facts = {}
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    flags = facts.get("flags", "").split()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": facts.get("model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "instructions": [name for name in INSTRUCTIONS if name in flags],
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(),
    }


def sentence(machine):
    """What `describe` gives, as one line."""
    has = ", ".join(machine["instructions"]) or "none of " + ", ".join(INSTRUCTIONS)
    return (
        f"{machine['processor']}, {machine['cores']} cores ({has}), "
        f"{machine['memory_gib']:g} GiB, {machine['system']}"
    )


def resident_mib(process_id):
    """The resident set size of a process in MiB."""
    for line in _lines(f"/proc/{process_id}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{process_id}/status does not say VmRSS")


def processor_seconds(process_id):
    """Processor seconds of a process and of those that it has started and that still run."""
    lines = _lines(f"/proc/{process_id}/stat")
    if not lines:  # it has ended, or no Linux
        return 0.0
    ticks = sum(map(int, lines[0].rpartition(")")[2].split()[11:13]))  # user and system
    children = Path(f"/proc/{process_id}/task").glob("*/children")
    started = " ".join(line for path in children for line in _lines(path)).split()
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(processor_seconds, started))


def _lines(path):
    try:
        return Path(path).read_text().splitlines()
    except OSError:  # no Linux
        return []
