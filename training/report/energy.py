"""Measures the energy that a machine uses, in joules, with its counters. Nothing is estimated.

    processors   RAPL: every package, and every memory with its own counter
                 (/sys/class/powercap; since 2020 the kernel allows only root to read it)
    gpus         NVIDIA's library NVML: the GPUs in CUDA_VISIBLE_DEVICES, or all of them

A counter covers the whole device, so it includes other programs. Parts without a counter (fans,
disks, losses of the power supply) are not included.
"""

import os
import threading
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
# Seconds between two readings: a counter of 65,536 J wraps around after 3 minutes at 350 W.
PERIOD = 30.0


class Counter:
    """Adds up the joules since its creation, by a function `read` that returns a growing number.

    At `maximum` joules the number restarts from 0.
    """

    def __init__(self, read, maximum=0.0):
        self.read, self.maximum = read, maximum
        self.before, self.joules = read(), 0.0

    def update(self):
        now = self.read()
        grown = now - self.before
        self.joules += grown if grown >= 0 else grown + self.maximum
        self.before = now


class Energy:
    """The energy used since its creation; `with Energy(...) as energy:` also reads it regularly.

    GPUs are measured only with `gpus`. `missing` is {part: why it could not be measured}; the parts
    are "processors" and "gpus".
    """

    def __init__(self, gpus=False, powercap=POWERCAP):
        self.missing, self.counters = {}, {}
        parts = {"processors": lambda: rapl_counters(powercap)}
        if gpus:
            parts["gpus"] = nvml_counters
        for part, find in parts.items():
            try:
                self.counters[part] = find()
            except (OSError, ValueError) as error:
                self.missing[part] = str(error)
        self.lock, self.over = threading.Lock(), threading.Event()

    def __enter__(self):
        if self.counters:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.over.set()

    def _watch(self):
        """Reads the counters regularly, so that no wrap-around is missed."""
        while not self.over.wait(PERIOD):
            self.joules()

    def joules(self):
        """{part: joules} of the parts that can be measured."""
        with self.lock:
            for part in list(self.counters):
                try:
                    for counter in self.counters[part]:
                        counter.update()
                except (OSError, ValueError) as error:
                    self.missing[part] = str(error)
                    del self.counters[part]
            return {
                part: sum(counter.joules for counter in counters)
                for part, counters in self.counters.items()
            }


def rapl_counters(powercap=POWERCAP):
    """A `Counter` for each package, and for each memory, which packages do not include."""
    counters = []
    for zone in sorted(Path(powercap).glob("intel-rapl:*")):
        name = (zone / "name").read_text().strip()
        if name.startswith("package") or name == "dram":
            maximum = int((zone / "max_energy_range_uj").read_text()) / 1e6
            counters.append(
                Counter(lambda zone=zone: int((zone / "energy_uj").read_text()) / 1e6, maximum)
            )
    if not counters:
        raise OSError(f"{powercap} has no intel-rapl zone of a processor")
    return counters


def nvml_counters():
    """A `Counter` for each visible GPU. (A GPU older than Volta has none, which is an OSError.)

    Indices in CUDA_VISIBLE_DEVICES are taken in the order of the PCI bus.
    """
    import pynvml

    def ask(function, *arguments):
        try:
            return getattr(pynvml, function)(*arguments)
        except pynvml.NVMLError as error:
            raise OSError(f"{function} of NVIDIA's library fails: {error}") from error

    def handle(name):
        if name.isdecimal():
            return ask("nvmlDeviceGetHandleByIndex", int(name))
        return ask("nvmlDeviceGetHandleByUUID", name)

    def joules(device):
        return ask("nvmlDeviceGetTotalEnergyConsumption", device) / 1e3

    ask("nvmlInit")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        names = map(str, range(ask("nvmlDeviceGetCount")))
    else:
        names = (name.strip() for name in visible.split(",") if name.strip())
    devices = [handle(name) for name in names]
    if not devices:
        raise OSError("NVIDIA's library finds no GPU")
    return [Counter(lambda device=device: joules(device)) for device in devices]
