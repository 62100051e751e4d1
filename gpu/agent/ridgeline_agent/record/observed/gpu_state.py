"""GPU clocks, throttling and other processes on the GPU during the timing: `observed.gpu` of the
manifest.

NVML is queried between iterations, at most ten times a second, because each query takes a few
microseconds. What it does not report is unknown, and the reason is recorded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from time import perf_counter_ns
from typing import Any

import torch

from ...system import nvml

_INTERVAL_NS = 100_000_000
_MAX_QUERIES = 64
_MAX_PROCESSES = 1024
_MAX_GENERATIONS = 16
# NVML's number for the clock of the multiprocessors.
_SM_CLOCK = 1
# NVML's bits for reasons of a reduced clock, and this project's names for them.
_LIMITS = (
    (0x04 | 0x80, "power"),  # software limit, or power brake of the power supply
    (0x20 | 0x40, "heat"),
    (0x08, "hardware"),
)
# NVML's value for an unknown amount of process memory.
_UNKNOWN_BYTES = 2**64 - 1


class _Process(ctypes.Structure):
    """`nvmlProcessInfo_v2_t`, which version 3 of the function also fills."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class GpuState:
    """Observes one GPU."""

    def __init__(self, gpu: nvml.Gpu | nvml.Unavailable) -> None:
        self._gpu = gpu
        self._queried_ns = 0
        self._clocks: list[int] = []
        self._limits: dict[str, None] = {}
        self._others: tuple[int, int | None] | None = None

    @classmethod
    def of(cls, device: torch.device) -> GpuState | None:
        """Returns the state of a device, or None if it is not from NVIDIA."""
        if device.type != "cuda" or torch.version.hip:
            return None
        return cls(nvml.find(device))

    def query(self, now_ns: int | None = None) -> None:
        """Queries the clock, unless that was done recently."""
        now_ns = perf_counter_ns() if now_ns is None else now_ns
        recently = self._queried_ns and now_ns - self._queried_ns < _INTERVAL_NS
        if recently or len(self._clocks) >= _MAX_QUERIES:
            return
        self._queried_ns = now_ns
        clock = self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _SM_CLOCK)
        if clock is not None:
            self._clocks.append(clock)
        # The second is its name in older drivers.
        for function in (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ):
            reasons = self._number(function, ctypes.c_ulonglong)
            if reasons is not None:
                self._limits.update((name, None) for bits, name in _LIMITS if reasons & bits)
                break

    def query_processes(self, ranks: Collection[int] = ()) -> None:
        """Counts the processes that compute on the GPU, except this one, the `ranks` of the same
        run, and their children. Takes longer than a clock query, so it is not called during the
        timing.
        """
        processes = self._processes()
        # In a container, NVML reports the host's process IDs, and this process cannot recognize its
        # own.
        if processes is None or all(pid != os.getpid() for pid, _ in processes):
            return
        ours = {os.getpid(), *ranks}
        others = [used_bytes for pid, used_bytes in processes if not _is_one_of(ours, pid)]
        known = [used_bytes for used_bytes in others if used_bytes is not None]
        self._others = (len(others), sum(known) if len(known) == len(others) else None)

    def forget(self) -> None:
        """Discards all observations, because the timing restarts."""
        self._clocks.clear()
        self._limits.clear()

    def json(self) -> dict[str, object]:
        """Returns `observed.gpu` for the manifest."""
        processes, used_bytes = self._others or (None, None)
        return {
            "clock_mhz": self._clocks,
            "highest_clock_mhz": self._number(
                "nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _SM_CLOCK
            ),
            "limited_by": list(self._limits),
            "other_processes": processes,
            "other_bytes": used_bytes,
            "unknown": self._unknown(),
        }

    def _unknown(self) -> list[str]:
        """Returns what is unknown and why, as sentences."""
        if isinstance(self._gpu, nvml.Unavailable):
            return [
                f"GPU clocks, energy and other processes on the GPU are unknown: {self._gpu.why}."
            ]
        if self._gpu.is_instance:
            return [
                "The energy of an iteration is unknown: NVML reports the whole GPU, and other MIG "
                "instances may be using it."
            ]
        return []

    def _number(self, name: str, kind: Any, *arguments: int) -> int | None:
        if isinstance(self._gpu, nvml.Unavailable):
            return None
        function = getattr(self._gpu.library, name, None)
        if function is None:
            return None
        value = kind()
        error_code = function(self._gpu.whole, *arguments, ctypes.byref(value))
        return int(value.value) if error_code == nvml.SUCCESS else None

    def _processes(self) -> list[tuple[int, int | None]] | None:
        """Returns `(process ID, bytes)` of each process that computes on it."""
        if isinstance(self._gpu, nvml.Unavailable):
            return None
        function = getattr(self._gpu.library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if function is None:
            return None
        count = ctypes.c_uint(_MAX_PROCESSES)
        processes = (_Process * _MAX_PROCESSES)()
        if function(self._gpu.device, ctypes.byref(count), processes) != nvml.SUCCESS:
            return None
        return [
            (one.pid, None if one.bytes == _UNKNOWN_BYTES else one.bytes)
            for one in processes[: min(count.value, _MAX_PROCESSES)]
        ]


def _is_one_of(ours: Collection[int], pid: int) -> bool:
    """Whether a process is one of ours or their descendant, such as a loader's worker."""
    for _ in range(_MAX_GENERATIONS):
        if pid in ours:
            return True
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                # The name before it may contain anything, and ends with the last parenthesis.
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False
