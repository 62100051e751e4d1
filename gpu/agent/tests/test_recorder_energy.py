"""NVML's counter of energy, as a library in its place answers."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from ridgeline_agent.energy import EnergyCounter
from ridgeline_agent.timing import Timer


class Nvml:
    """Counts on by 500 J at each look."""

    def __init__(self, failing: str | None = None) -> None:
        self.failing = failing
        self.counted = 0

    def _code(self, name: str) -> int:
        return 999 if name == self.failing else 0

    def nvmlInit_v2(self) -> int:
        return self._code("init")

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:
        return 0 if name == b"GPU-x" else 6

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, value: Any) -> int:
        self.counted += 500_000
        ctypes.cast(value, ctypes.POINTER(ctypes.c_ulonglong))[0] = self.counted
        return self._code("energy")


class Old:
    """A library of before there was such a counter."""

    def nvmlInit_v2(self) -> int:
        return 0


def test_a_counter_counts() -> None:
    counter = EnergyCounter.by_name(Nvml(), "GPU-x")
    assert counter is not None
    first, second = counter.millijoules(), counter.millijoules()
    assert first is not None and second == first + 500_000


def test_what_is_not_there_is_not_measured() -> None:
    assert EnergyCounter.by_name(Nvml(), "GPU-y") is None
    assert EnergyCounter.by_name(Nvml("init"), "GPU-x") is None
    assert EnergyCounter.by_name(Nvml("energy"), "GPU-x") is None
    assert EnergyCounter.by_name(Old(), "GPU-x") is None
    assert EnergyCounter.of(torch.device("cpu")) is None


def test_the_timer_of_a_cpu_knows_no_energy() -> None:
    timer = Timer(torch.device("cpu"))
    timer.begin()
    timer.end(10)
    timer.finish()
    assert timer.joules() is None
