"""How fast the GPU ran while it was timed, what held it back, and who else computed on it:
`observed.gpu` of the manifest.

NVML is asked between iterations, at most ten times a second, because each question takes some
microseconds. What it does not answer is unknown, and the reason is recorded.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Collection
from typing import Any

import torch

from ...system import nvml

_BETWEEN_NS = 100_000_000
_MOST_LOOKS = 64
_MOST_PROCESSES = 1024
_MOST_GENERATIONS = 16
# The clock of the multiprocessors, among NVML's clocks.
_SM_CLOCK = 1
# NVML's bits for why a clock is lower than it could be, as this project calls them.
_LIMITS = (
    (0x04 | 0x80, "power"),  # the software's limit, or the power supply's brake
    (0x20 | 0x40, "heat"),
    (0x08, "hardware"),
)
# NVML says so where it does not know a process's memory.
_UNKNOWN_BYTES = 2**64 - 1


class _Process(ctypes.Structure):
    """`nvmlProcessInfo_v2_t`, which version 3 of the function fills as well."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class GpuState:
    """Looks at one GPU."""

    def __init__(self, gpu: nvml.Gpu | nvml.Unavailable) -> None:
        self._gpu = gpu
        self._looked_ns = 0
        self._clocks: list[int] = []
        self._limits: dict[str, None] = {}
        self._others: tuple[int, int | None] | None = None

    @classmethod
    def of(cls, device: torch.device) -> GpuState | None:
        """The state of a device; nothing where it is not NVIDIA's."""
        if device.type != "cuda" or torch.version.hip:
            return None
        return cls(nvml.find(device))

    def look(self, now_ns: int | None = None) -> None:
        """Looks at the clock, unless it has just been done."""
        now_ns = time.perf_counter_ns() if now_ns is None else now_ns
        recently = self._looked_ns and now_ns - self._looked_ns < _BETWEEN_NS
        if recently or len(self._clocks) >= _MOST_LOOKS:
            return
        self._looked_ns = now_ns
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

    def look_at_processes(self, ranks: Collection[int] = ()) -> None:
        """Counts the processes that compute on it besides this one, the `ranks` of the same run,
        and those that one of them has started. Takes longer than a look at the clock: not while
        timing.
        """
        processes = self._processes()
        # In a container the numbers are the host's, and this process cannot tell which it is.
        if processes is None or all(pid != os.getpid() for pid, _ in processes):
            return
        ours = {os.getpid(), *ranks}
        others = [held for pid, held in processes if not _is_one_of(ours, pid)]
        known = [held for held in others if held is not None]
        self._others = (len(others), sum(known) if len(known) == len(others) else None)

    def forget(self) -> None:
        """What was seen counts for nothing: the timing begins anew."""
        self._clocks.clear()
        self._limits.clear()

    def json(self) -> dict[str, object]:
        """`observed.gpu` of the manifest."""
        processes, held = self._others or (None, None)
        return {
            "clock_mhz": self._clocks,
            "highest_clock_mhz": self._number(
                "nvmlDeviceGetMaxClockInfo", ctypes.c_uint, _SM_CLOCK
            ),
            "limited_by": list(self._limits),
            "other_processes": processes,
            "other_bytes": held,
            "unknown": self._unknown(),
        }

    def _unknown(self) -> list[str]:
        """What cannot be known and why, as sentences."""
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
        said = function(self._gpu.whole, *arguments, ctypes.byref(value))
        return int(value.value) if said == nvml.SUCCESS else None

    def _processes(self) -> list[tuple[int, int | None]] | None:
        """`(process, bytes)` of each that computes on it."""
        if isinstance(self._gpu, nvml.Unavailable):
            return None
        function = getattr(self._gpu.library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if function is None:
            return None
        count = ctypes.c_uint(_MOST_PROCESSES)
        processes = (_Process * _MOST_PROCESSES)()
        if function(self._gpu.device, ctypes.byref(count), processes) != nvml.SUCCESS:
            return None
        return [
            (one.pid, None if one.bytes == _UNKNOWN_BYTES else one.bytes)
            for one in processes[: min(count.value, _MOST_PROCESSES)]
        ]


def _is_one_of(ours: Collection[int], pid: int) -> bool:
    """Whether a process is one of ours, or was started by one, such as a loader's worker."""
    for _ in range(_MOST_GENERATIONS):
        if pid in ours:
            return True
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                # The name before it may hold anything, and ends with the last bracket.
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False
