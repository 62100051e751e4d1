"""The GPU state reported by NVML, with a fake NVML library."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import torch

from ridgeline_agent.protocol import rank_states
from ridgeline_agent.protocol.rank_states import RankState
from ridgeline_agent.record.observed.gpu_state import GpuState, _Process
from ridgeline_agent.system import nvml

HANDLE = ctypes.c_void_p(1)
INSTANCE = ctypes.c_void_p(2)


def state_of(library: Any) -> GpuState:
    return GpuState(nvml.Gpu(library, HANDLE, HANDLE))


# The shell that starts the process exits, so that the process is not a child of this one.
_PARENT_AND_CHILD = "sh -c 'sleep 100 >&- 2>&- & echo $$ $!; exec sleep 100 >&- 2>&-' &"


def _process_with_child() -> tuple[int, int]:
    """Starts an unrelated process with a child of its own."""
    result = subprocess.run(["sh", "-c", _PARENT_AND_CHILD], stdout=subprocess.PIPE, check=True)
    pid, child = result.stdout.split()
    return int(pid), int(child)


def _set(pointer: Any, kind: Any, value: int) -> None:
    ctypes.cast(pointer, ctypes.POINTER(kind))[0] = value


class FakeNvml:
    """A GPU that is throttled by power and heat, with these processes."""

    def __init__(self, processes: list[tuple[int, int]]) -> None:
        self.processes = processes
        self.queries = 0

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int, value: Any) -> int:
        assert clock == 1
        self.queries += 1
        _set(value, ctypes.c_uint, 1500 + self.queries)
        return 0

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, clock: int, value: Any) -> int:
        _set(value, ctypes.c_uint, 1980)
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, value: Any) -> int:
        _set(value, ctypes.c_ulonglong, 0x1 | 0x4 | 0x40)
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, infos: Any) -> int:
        for index, (pid, memory) in enumerate(self.processes):
            infos[index] = _Process(pid, memory, 0, 0)
        _set(count, ctypes.c_uint, len(self.processes))
        return 0


class FailingNvml:
    """A library whose functions all fail."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 3


def test_throttled_gpu() -> None:
    other_process = os.getppid()
    state = state_of(FakeNvml([(os.getpid(), 10), (other_process, 1000)]))
    for now_ns in (1, 50_000_000, 100_000_001, 300_000_000):
        state.query(now_ns)
    state.query_processes()
    assert state.json() == {
        # The second query was too soon after the first.
        "clock_mhz": [1501, 1502, 1503],
        "highest_clock_mhz": 1980,
        "limited_by": ["power", "heat"],
        "other_processes": 1,
        "other_bytes": 1000,
        "unknown": [],
    }


def test_child_processes_are_not_other_processes() -> None:
    child = os.fork()
    if child == 0:
        while True:
            os.read(os.pipe()[0], 1)
    try:
        state = state_of(FakeNvml([(child, 5), (os.getpid(), 10)]))
        state.query_processes()
        assert (state.json()["other_processes"], state.json()["other_bytes"]) == (0, 0)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_ranks_of_same_run_are_not_other_processes(tmp_path: Path) -> None:
    (tmp_path / rank_states.FOLDER).mkdir()
    sibling, sibling_worker = _process_with_child()
    other_process, other_child = _process_with_child()
    try:
        for rank, pid in enumerate([os.getpid(), sibling]):
            rank_states.write(str(tmp_path), RankState(rank, 2, pid))
        memory = [
            (os.getpid(), 10),
            (sibling, 20),
            (sibling_worker, 30),
            (other_process, 400),
            (other_child, 50),
        ]
        for rank in range(2):
            folder = rank_states.rank_folder(str(tmp_path), rank)
            state = state_of(FakeNvml(memory))
            state.query_processes(rank_states.processes_of_run(folder, rank))
            assert (state.json()["other_processes"], state.json()["other_bytes"]) == (2, 450)
    finally:
        for pid in (sibling, sibling_worker, other_process, other_child):
            os.kill(pid, 9)


def test_other_processes_are_unknown_in_container() -> None:
    for processes in ([], [(2**22 + 1, 10)]):
        state = state_of(FakeNvml(processes))
        state.query_processes()
        assert state.json()["other_processes"] is None


def test_memory_that_driver_does_not_report() -> None:
    state = state_of(FakeNvml([(os.getpid(), 10), (os.getppid(), 2**64 - 1)]))
    state.query_processes()
    assert (state.json()["other_processes"], state.json()["other_bytes"]) == (1, None)


def test_unavailable_functions() -> None:
    for library in (object(), FailingNvml()):
        state = state_of(library)
        state.query()
        state.query_processes()
        assert state.json() == {
            "clock_mhz": [],
            "highest_clock_mhz": None,
            "limited_by": [],
            "other_processes": None,
            "other_bytes": None,
            "unknown": [],
        }


class MigNvml(FakeNvml):
    """NVML with MIG: clocks are reported for the GPU, processes for the instance."""

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int, value: Any) -> int:
        return 3 if handle is INSTANCE else super().nvmlDeviceGetClockInfo(handle, clock, value)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, infos: Any) -> int:
        assert handle is INSTANCE
        return super().nvmlDeviceGetComputeRunningProcesses_v3(handle, count, infos)


def test_mig_instance() -> None:
    state = GpuState(nvml.Gpu(MigNvml([(os.getpid(), 10)]), INSTANCE, HANDLE))
    state.query()
    state.query_processes()
    result = state.json()
    assert (result["clock_mhz"], result["other_processes"]) == ([1501], 0)
    [why] = result["unknown"]  # type: ignore[misc]
    assert "other MIG instances" in why


def test_reason_is_reported_without_nvml() -> None:
    state = GpuState(nvml.Unavailable("NVML is not on this machine"))
    state.query()
    state.query_processes()
    result = state.json()
    assert (result["clock_mhz"], result["other_processes"]) == ([], None)
    assert result["unknown"] == [
        "GPU clocks, energy and other processes on the GPU are unknown: "
        "NVML is not on this machine."
    ]


def test_no_gpu_state_on_cpu() -> None:
    assert GpuState.of(torch.device("cpu")) is None
