"""What NVML says of a GPU, as a library in its place answers."""

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
    """Of a GPU that is used as a whole."""
    return GpuState(nvml.Gpu(library, HANDLE, HANDLE))


# The shell that starts it ends, so that it is no child of this process.
_PARENT_AND_CHILD = "sh -c 'sleep 100 >&- 2>&- & echo $$ $!; exec sleep 100 >&- 2>&-' &"


def _with_a_child() -> tuple[int, int]:
    """A process that this one did not start, and a child of it."""
    said = subprocess.run(["sh", "-c", _PARENT_AND_CHILD], stdout=subprocess.PIPE, check=True)
    pid, child = said.stdout.split()
    return int(pid), int(child)


def _set(pointer: Any, kind: Any, value: int) -> None:
    ctypes.cast(pointer, ctypes.POINTER(kind))[0] = value


class Nvml:
    """A GPU that power and heat hold back, with these processes on it."""

    def __init__(self, processes: list[tuple[int, int]]) -> None:
        self.processes = processes
        self.looks = 0

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int, value: Any) -> int:
        assert clock == 1
        self.looks += 1
        _set(value, ctypes.c_uint, 1500 + self.looks)
        return 0

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, clock: int, value: Any) -> int:
        _set(value, ctypes.c_uint, 1980)
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, value: Any) -> int:
        _set(value, ctypes.c_ulonglong, 0x1 | 0x4 | 0x40)
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        for at, (pid, held) in enumerate(self.processes):
            found[at] = _Process(pid, held, 0, 0)
        _set(count, ctypes.c_uint, len(self.processes))
        return 0


class Failing:
    """Knows the functions, and answers none."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 3


def test_a_gpu_that_is_held_back() -> None:
    stranger = os.getppid()
    state = state_of(Nvml([(os.getpid(), 10), (stranger, 1000)]))
    for now_ns in (1, 50_000_000, 100_000_001, 300_000_000):
        state.query(now_ns)
    state.query_processes()
    assert state.json() == {
        # The second look came too soon after the first.
        "clock_mhz": [1501, 1502, 1503],
        "highest_clock_mhz": 1980,
        "limited_by": ["power", "heat"],
        "other_processes": 1,
        "other_bytes": 1000,
        "unknown": [],
    }


def test_a_worker_of_ours_is_no_other_process() -> None:
    child = os.fork()
    if child == 0:
        while True:
            os.read(os.pipe()[0], 1)
    try:
        state = state_of(Nvml([(child, 5), (os.getpid(), 10)]))
        state.query_processes()
        assert (state.json()["other_processes"], state.json()["other_bytes"]) == (0, 0)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_ranks_of_the_same_run_are_no_other_processes(tmp_path: Path) -> None:
    (tmp_path / rank_states.FOLDER).mkdir()
    sibling, its_worker = _with_a_child()
    stranger, its_child = _with_a_child()
    try:
        for rank, pid in enumerate([os.getpid(), sibling]):
            rank_states.write(str(tmp_path), RankState(rank, 2, pid))
        held = [
            (os.getpid(), 10),
            (sibling, 20),
            (its_worker, 30),
            (stranger, 400),
            (its_child, 50),
        ]
        for rank in range(2):
            folder = rank_states.rank_folder(str(tmp_path), rank)
            state = state_of(Nvml(held))
            state.query_processes(rank_states.processes_of_run(folder, rank))
            assert (state.json()["other_processes"], state.json()["other_bytes"]) == (2, 450)
    finally:
        for pid in (sibling, its_worker, stranger, its_child):
            os.kill(pid, 9)


def test_processes_of_a_host_that_cannot_be_told_apart() -> None:
    for processes in ([], [(2**22 + 1, 10)]):
        state = state_of(Nvml(processes))
        state.query_processes()
        assert state.json()["other_processes"] is None


def test_memory_that_the_driver_does_not_tell() -> None:
    state = state_of(Nvml([(os.getpid(), 10), (os.getppid(), 2**64 - 1)]))
    state.query_processes()
    assert (state.json()["other_processes"], state.json()["other_bytes"]) == (1, None)


def test_a_library_that_does_not_answer() -> None:
    for library in (object(), Failing()):
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


class Instances(Nvml):
    """As NVML answers under MIG: clocks for the GPU, processes for the instance."""

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int, value: Any) -> int:
        return 3 if handle is INSTANCE else super().nvmlDeviceGetClockInfo(handle, clock, value)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        assert handle is INSTANCE
        return super().nvmlDeviceGetComputeRunningProcesses_v3(handle, count, found)


def test_an_instance_has_the_clocks_of_its_gpu_and_processes_of_its_own() -> None:
    state = GpuState(nvml.Gpu(Instances([(os.getpid(), 10)]), INSTANCE, HANDLE))
    state.query()
    state.query_processes()
    found = state.json()
    assert (found["clock_mhz"], found["other_processes"]) == ([1501], 0)
    [why] = found["unknown"]  # type: ignore[misc]
    assert "other MIG instances" in why


def test_the_reason_is_told_where_nvml_has_no_answers() -> None:
    state = GpuState(nvml.Unavailable("NVML is not on this machine"))
    state.query()
    state.query_processes()
    found = state.json()
    assert (found["clock_mhz"], found["other_processes"]) == ([], None)
    assert found["unknown"] == [
        "GPU clocks, energy and other processes on the GPU are unknown: "
        "NVML is not on this machine."
    ]


def test_a_cpu_has_no_such_state() -> None:
    assert GpuState.of(torch.device("cpu")) is None
