"""Describes the machine of a measurement, and what a process uses of it."""

import datetime
import os
from pathlib import Path

from training.step.machine import describe, lines, sentence

__all__ = [
    "anonymous_mib",
    "describe",
    "peak_mib",
    "processor_seconds",
    "resident_mib",
    "sentence",
    "today",
]


def today():
    """This machine and the date, as they stand beside a measurement."""
    return f"{sentence(describe())}, {datetime.date.today()}"


def resident_mib(process_id):
    """The resident set size of a process in MiB."""
    return _status_mib(process_id, "VmRSS")


def peak_mib(process_id="self"):
    """The maximum resident set size so far, in MiB."""
    return _status_mib(process_id, "VmHWM")


def anonymous_mib(process_id="self"):
    """The resident set size in MiB without pages of files."""
    return _status_mib(process_id, "RssAnon")


def _status_mib(process_id, name):
    for line in lines(f"/proc/{process_id}/status"):
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{process_id}/status has no {name}")


def processor_seconds(process_id):
    """Processor seconds of a process and of its children that still run."""
    stat = lines(f"/proc/{process_id}/stat")
    if not stat:  # it has ended, or no Linux
        return 0.0
    ticks = sum(map(int, stat[0].rpartition(")")[2].split()[11:13]))  # user and system
    children = Path(f"/proc/{process_id}/task").glob("*/children")
    started = " ".join(line for path in children for line in lines(path)).split()
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(processor_seconds, started))
