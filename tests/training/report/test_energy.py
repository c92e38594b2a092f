"""Counters of energy: what is counted, overflow of a counter, missing counters."""

import ctypes
import os
import shutil
import time

import pynvml
import pytest
from powercap import zone

from training.report import energy
from training.report.energy import Energy, nvml_counters, rapl_counters


@pytest.fixture
def powercap(tmp_path):
    """Two packages of 100 J; the other zones are parts or copies of them."""
    (tmp_path / "intel-rapl").mkdir()
    return [
        zone(tmp_path, "intel-rapl:0", "package-0", 7_000_000, 100_000_000),
        zone(tmp_path, "intel-rapl:1", "package-1", 11_000_000, 100_000_000),
        zone(tmp_path, "intel-rapl:0:0", "core", 1),
        zone(tmp_path, "intel-rapl:0:1", "dram", 13_000_000),
        zone(tmp_path, "intel-rapl:2", "psys", 1),
        zone(tmp_path, "intel-rapl-mmio:0", "package-0", 1),
    ]


def test_packages_and_memories_are_counted_once(powercap, tmp_path):
    found = Energy(powercap=tmp_path)
    for n, counter in enumerate(powercap):
        counter.write_text(str(int(counter.read_text()) + 17**n))
    expected = (17**0 + 17**1 + 17**3) / 1e6
    assert found.joules() == {"processors": pytest.approx(expected)}
    assert found.joules() == {"processors": pytest.approx(expected)}
    assert not found.missing


def test_energy_counter_that_wraps_is_still_summed(powercap, tmp_path):
    found = Energy(powercap=tmp_path)
    for microjoules in (90_000_000, 4_000_000, 3_000_000):
        powercap[0].write_text(str(microjoules))
        joules = found.joules()["processors"]
    assert joules == pytest.approx((90 - 7) + (100 - 90 + 4) + (100 - 4 + 3))


def test_counter_overflow_is_noticed_in_the_background(powercap, tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "PERIOD", 0.01)
    with Energy(powercap=tmp_path) as found:
        for microjoules in (90_000_000, 4_000_000, 3_000_000):
            # In one step, as in the kernel: an empty file would be an unreadable counter.
            (tmp_path / "next").write_text(str(microjoules))
            os.replace(tmp_path / "next", powercap[0])
            until = time.monotonic() + 30
            while found.counters["processors"][0].before != microjoules / 1e6:
                assert time.monotonic() < until
                time.sleep(0.01)
    assert found.joules()["processors"] == pytest.approx(83 + 14 + 99)


def test_unreadable_counter_is_missing_and_not_zero(powercap, tmp_path):
    found = Energy(powercap=tmp_path)
    assert "processors" in found.joules()
    # One of the two; half of the sum would be wrong.
    powercap[1].unlink()
    assert found.joules() == {} and str(powercap[1]) in found.missing["processors"]
    assert str(powercap[1]) in Energy(powercap=tmp_path).missing["processors"]
    shutil.rmtree(tmp_path)
    with pytest.raises(OSError, match="no intel-rapl zone"):
        rapl_counters(tmp_path)


class Nvml:
    """NVIDIA's library for boards with these millijoules by number; -1: it has no counter.

    `pynvml` loads it: C functions, which return a code and write into their arguments.
    """

    def __init__(self, millijoules):
        self.millijoules = millijoules

    def nvmlInitWithFlags(self, flags):
        return 0

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = len(self.millijoules)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        place = ctypes.cast(ctypes.pointer(handle._obj), ctypes.POINTER(ctypes.c_void_p))
        place.contents.value = index.value + 1
        return 0 if index.value < len(self.millijoules) else 2

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        number = ctypes.c_uint(int(uuid.value.removeprefix(b"GPU-")))
        return self.nvmlDeviceGetHandleByIndex_v2(number, handle)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, millijoules):
        found = self.millijoules[ctypes.cast(handle, ctypes.c_void_p).value - 1]
        millijoules._obj.value = max(0, found)
        return 3 if found < 0 else 0  # NVML_ERROR_NOT_SUPPORTED


@pytest.fixture
def nvml(monkeypatch):
    """Gives `pynvml` a library with boards; returns it."""

    def load(millijoules):
        monkeypatch.setattr(pynvml, "nvmlLib", Nvml(millijoules))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        return pynvml.nvmlLib

    return load


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, 2 + 3 + 5), ("1", 3), ("2, 0", 2 + 5), ("GPU-2", 5)],
)
def test_visible_gpus_are_counted(nvml, monkeypatch, tmp_path, visible, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    library = nvml([7000, 11000, 13000])
    found = Energy(gpus=True, powercap=tmp_path)
    library.millijoules = [9000, 14000, 18000]
    assert found.joules() == {"gpus": pytest.approx(expected)}
    assert set(found.missing) == {"processors"}


def test_gpus_without_a_counter_are_missing(nvml, monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml([7, -1])
    found = Energy(gpus=True, powercap=tmp_path)
    assert found.joules() == {}
    assert "nvmlDeviceGetTotalEnergyConsumption" in found.missing["gpus"]
    nvml([])
    with pytest.raises(OSError, match="no GPU"):
        nvml_counters()
    # If no board is used, none is searched for.
    assert set(Energy(powercap=tmp_path).missing) == {"processors"}
