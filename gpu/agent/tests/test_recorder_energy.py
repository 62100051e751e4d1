"""The NVML energy counter, with a fake NVML library."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from ridgeline_agent.record.energy import EnergyCounter
from ridgeline_agent.record.timing import Timer
from ridgeline_agent.system import nvml
from ridgeline_agent.system.hook_time import HookTime


class FakeNvml:
    """A GPU whose energy counter increases by 500 J with each query."""

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


class OldNvml:
    """A library without the energy counter."""

    def nvmlInit_v2(self) -> int:
        return 0


class MigNvml(FakeNvml):
    """A MIG instance of a GPU."""

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:
        return 0 if name == b"MIG-x" else 6

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: Any, gpu: Any) -> int:
        return self._code("parent")


def counter_of(library: Any, uuid: str) -> EnergyCounter | None:
    return EnergyCounter.of_gpu(nvml.by_uuid(library, uuid))


def test_counter() -> None:
    counter = counter_of(FakeNvml(), "x")
    assert counter is not None
    first, second = counter.millijoules(), counter.millijoules()
    assert first is not None and second == first + 500_000


def test_counter_is_none_if_unavailable() -> None:
    assert counter_of(FakeNvml(), "y") is None
    assert counter_of(FakeNvml("init"), "x") is None
    assert counter_of(FakeNvml("energy"), "x") is None
    assert counter_of(OldNvml(), "x") is None
    assert EnergyCounter.of(torch.device("cpu")) is None


def test_no_counter_for_mig_instance() -> None:
    gpu = nvml.by_uuid(MigNvml(), "x")
    assert isinstance(gpu, nvml.Gpu) and gpu.is_instance
    assert counter_of(MigNvml(), "x") is None


def test_unavailable_reasons() -> None:
    reasons = [
        nvml.by_uuid(FakeNvml(), "y"),
        nvml.by_uuid(FakeNvml("init"), "x"),
        nvml.by_uuid(MigNvml("parent"), "x"),
    ]
    assert reasons == [
        nvml.Unavailable("NVML does not know this GPU"),
        nvml.Unavailable("NVML failed to initialize (error 999)"),
        nvml.Unavailable("NVML does not report the GPU of this MIG instance (error 999)"),
    ]
    old = nvml.by_uuid(OldNvml(), "x")
    assert isinstance(old, nvml.Unavailable) and "too old" in old.why


def test_no_energy_on_cpu() -> None:
    timer = Timer(torch.device("cpu"), HookTime())
    timer.begin()
    timer.end(10)
    timer.finish()
    assert timer.joules() is None
