"""NVML's counter of energy, as a library in its place answers."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from ridgeline_agent.record.energy import EnergyCounter
from ridgeline_agent.record.timing import Timer
from ridgeline_agent.system import nvml


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


class Instance(Nvml):
    """A GPU of which a MIG instance is used."""

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:
        return 0 if name == b"MIG-x" else 6

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: Any, whole: Any) -> int:
        return self._code("parent")


def counter_of(library: Any, uuid: str) -> EnergyCounter | None:
    return EnergyCounter.of_gpu(nvml.by_uuid(library, uuid))


def test_a_counter_counts() -> None:
    counter = counter_of(Nvml(), "x")
    assert counter is not None
    first, second = counter.millijoules(), counter.millijoules()
    assert first is not None and second == first + 500_000


def test_what_is_not_there_is_not_measured() -> None:
    assert counter_of(Nvml(), "y") is None
    assert counter_of(Nvml("init"), "x") is None
    assert counter_of(Nvml("energy"), "x") is None
    assert counter_of(Old(), "x") is None
    assert EnergyCounter.of(torch.device("cpu")) is None


def test_the_counter_of_a_gpu_that_is_shared_is_not_the_instance_s() -> None:
    found = nvml.by_uuid(Instance(), "x")
    assert isinstance(found, nvml.Gpu) and found.is_instance
    assert counter_of(Instance(), "x") is None


def test_each_reason_is_told() -> None:
    reasons = [
        nvml.by_uuid(Nvml(), "y"),
        nvml.by_uuid(Nvml("init"), "x"),
        nvml.by_uuid(Instance("parent"), "x"),
    ]
    assert reasons == [
        nvml.Unavailable("NVML does not know this GPU"),
        nvml.Unavailable("NVML failed to initialize (error 999)"),
        nvml.Unavailable("NVML does not report the GPU of this MIG instance (error 999)"),
    ]
    old = nvml.by_uuid(Old(), "x")
    assert isinstance(old, nvml.Unavailable) and "too old" in old.why


def test_the_timer_of_a_cpu_knows_no_energy() -> None:
    timer = Timer(torch.device("cpu"))
    timer.begin()
    timer.end(10)
    timer.finish()
    assert timer.joules() is None
