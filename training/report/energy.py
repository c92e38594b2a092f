"""The energy that a machine uses, in joules, by its own counters; none are invented.

    processors   RAPL: every package, and every memory that has a counter of its own
                 (/sys/class/powercap; since 2020 the kernel lets root alone read it)
    gpus         NVIDIA's library NVML: the boards that CUDA_VISIBLE_DEVICES names, or all of them

A counter is of the whole device: it has in it whatever else runs there, and nothing of what has no
counter (fans, disks, the power supply's loss).
"""

import os
import threading
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
# Seconds from one reading to the next: a counter of 65,536 J wraps after 3 minutes of 350 W.
PERIOD = 30.0


class Counter:
    """The joules since it was made, of a number that grows.

    Args:
        read: a function that gives the number, in joules.
        most: where it begins again at 0. Default: never.
    """

    def __init__(self, read, most=0.0):
        self.read, self.most = read, most
        self.before, self.joules = read(), 0.0

    def update(self):
        now = self.read()
        grown = now - self.before
        self.joules += grown if grown >= 0 else grown + self.most
        self.before = now


class Energy:
    """What has been used since the block `with Energy(...) as energy:` was entered.

    Args:
        gpus: whether GPUs are used: only then are they looked for.
        powercap: the folder of RAPL's zones.

    Attributes:
        missing: why a part could not be had, by its name: "processors", "gpus".
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
        """A counter that nobody reads would wrap unseen."""
        while not self.over.wait(PERIOD):
            self.joules()

    def joules(self):
        """Joules by part, of the parts that can be had."""
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
    """A `Counter` for each package, and for each memory, which no package counts.

    Raises:
        OSError: there are none, or one cannot be read; it says which.
    """
    counters = []
    for zone in sorted(Path(powercap).glob("intel-rapl:*")):
        name = (zone / "name").read_text().strip()
        if name.startswith("package") or name == "dram":
            most = int((zone / "max_energy_range_uj").read_text()) / 1e6
            counters.append(
                Counter(lambda zone=zone: int((zone / "energy_uj").read_text()) / 1e6, most)
            )
    if not counters:
        raise OSError(f"{powercap} has no intel-rapl zone of a processor")
    return counters


def nvml_counters():
    """A `Counter` for each visible GPU.

    Indices in CUDA_VISIBLE_DEVICES are taken in the order of the bus.

    Raises:
        OSError: there is no driver, no GPU, or one without a counter (older than Volta).
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
