"""What ran while CUDA graphs were captured, recorded for the lines of what a replay launches.

A replay starts its kernels with one call, and nothing of the captured code runs again. The nodes
of a graph are numbered in the order in which the capture made them, and the profiler writes the
number of the node beside each kernel of a replay, so a trace of the capture has their launches.
Its events join the trace of the profiled iterations (docs/recording.md).
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import torch

from ..system.private_files import make_private

# More captures are not recorded, nor larger ones: their kernels belong to the line of the replay.
_MOST_CAPTURES = 16
_MOST_BYTES = 64 * 2**20
_HOST_EVENTS = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
_DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
# Kineto's trace ends with some hundred bytes behind its events.
_TAIL_BYTES = 1 << 12


class CaptureTraces:
    """Records captures, one at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # By number of the capture: from when to when it lasted, and the events of its trace.
        self._done: dict[int, tuple[int, int, list[str]]] = {}
        self._number = 0
        # Whether a capture is being recorded.
        self.is_on = False
        self._began_ns = 0
        # `(start, end, number of the capture)` of each replay in the profiled iterations.
        self._replays: list[tuple[int, int, int | None]] = []

    def begin(self, number: int) -> bool:
        """Records the capture that is about to begin. Returns whether it does."""
        full = len(self._done) >= _MOST_CAPTURES
        if full or self.is_on or torch.autograd._profiler_enabled():
            return False
        # Before CUDA 12.6 CUPTI crashed where graphs were in use and it was started a second time
        # after Kineto had taken it down; torch.compile says so, and switches that off likewise.
        os.environ.update({"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"})
        start_kineto(on_cuda=True, memory=False)
        self._number = number
        self.is_on = True
        self._began_ns = time.time_ns()
        return True

    def end(self) -> None:
        """The capture has ended."""
        if not self.is_on:
            return
        self.is_on = False
        results = torch._C._autograd._disable_profiler()
        ended_ns = time.time_ns()
        # Read at once: Kineto's results point into buffers that its next start uses again.
        events = _events(results, os.path.join(self._folder, "capture.json"))
        self._done[self._number] = (self._began_ns, ended_ns, events)

    def replayed(self, began_ns: int, number: int | None) -> None:
        """A graph was replayed in a profiled iteration."""
        self._replays.append((began_ns, time.time_ns(), number))

    def forget_replays(self) -> None:
        """The profiled iterations are thrown away."""
        self._replays.clear()

    @property
    def replays(self) -> int:
        """How many graphs were replayed in the profiled iterations."""
        return len(self._replays)

    def json(self) -> dict[str, object]:
        """`cuda_graphs` of the manifest."""
        needed = {number for _, _, number in self._replays if number is not None}
        captures = [number for number in self._done if number in needed]
        index = {number: at for at, number in enumerate(captures)}
        return {
            "captures": [list(self._done[number][:2]) for number in captures],
            "replays": [
                [start, end, None if number is None else index.get(number)]
                for start, end, number in self._replays
            ],
        }

    def add_to_trace(self, path: str) -> None:
        """Adds what ran during the captures that were replayed to Kineto's trace. The process is in
        its folder.
        """
        replayed = {number for _, _, number in self._replays if number is not None}
        events: list[str] = []
        for number, (_, _, of_capture) in self._done.items():
            if number in replayed:
                events += of_capture
        if events:
            _add_events(path, events)


def start_kineto(on_cuda: bool, memory: bool) -> Any:
    """Starts torch's profiler on this thread; `_disable_profiler` ends it.

    The configuration and the start are those of torch's own profiler; its end is not, for it would
    build Python objects of every event.
    """
    # Without `use_kineto`, torch records CUDA events for each operator instead of kernels.
    profiler: Any = torch.autograd.profiler.profile(
        use_cpu=True,
        use_device="cuda" if on_cuda else None,
        use_kineto=True,
        record_shapes=True,
        profile_memory=memory,
        with_stack=False,
    )
    profiler._prepare_trace()
    profiler._start_trace()
    return profiler


def _events(results: Any, path: str) -> list[str]:
    """The operators of a capture and the calls that made its nodes, as JSON."""
    results.save(path)
    make_private(path)
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            return []
        with open(path, encoding="utf-8", errors="replace") as file:
            events = json.load(file)["traceEvents"]
    finally:
        os.remove(path)
    # What another thread launched at the time ran at once, and is in no graph.
    ran = {
        event.get("args", {}).get("correlation")
        for event in events
        if event.get("cat") in _DEVICE_EVENTS
    }
    return [
        json.dumps(event)
        for event in events
        if event.get("ph") == "X"
        and event.get("cat") in _HOST_EVENTS
        and event.get("args", {}).get("correlation", 0) not in ran
    ]


def _add_events(path: str, events: list[str]) -> None:
    """Adds events behind the last one of a Chrome trace."""
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        first = max(0, size - _TAIL_BYTES)
        file.seek(first)
        before, bracket, after = file.read().rpartition(b"]")
        if not bracket or not before.rstrip().endswith(b"}"):
            raise ValueError("the trace is truncated")
        file.seek(first + len(before))
        file.write(b",\n" + ",\n".join(events).encode() + bracket + after)
