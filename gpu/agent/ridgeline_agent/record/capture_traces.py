"""Traces the capture of CUDA graphs, to attribute the kernels of replays to lines.

A replay starts all kernels with one call, without running the captured code again. Graph nodes are
numbered in the order of their capture, and the profiler stores the node number with each kernel of
a replay, so a trace of the capture has the launches of those kernels. Its events are added to the
trace of the profiled iterations (docs/recording.md).
"""

from __future__ import annotations

import os
import re
from json import dumps, load
from time import time_ns
from typing import Any

import torch

from ..system.private_files import make_private

# More or larger captures are not recorded. Their kernels are attributed to the replay's line.
_MAX_CAPTURES = 16
_MAX_TRACE_BYTES = 64 * 2**20
_HOST_EVENTS = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
_DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
# Kineto's trace ends with a few hundred bytes after its events.
_TAIL_BYTES = 1 << 12
# Messages of the profiler itself. Its warning about memory is a note of the recording.
KINETO_MESSAGE = re.compile(
    rb"^(USDT|VERBOSE|INFO|STAGE|WARNING|ERROR):[-\d]+ [:\d]+ \d+:\d+ \w+\.cpp:\d+\]"
    rb"|^\[W[\d.: ]+ CPUAllocator\.cpp:\d+\]"
)


class CaptureTraces:
    """Records captures, one at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # By capture number: start and end time, and the events of its trace.
        self._done: dict[int, tuple[int, int, list[str]]] = {}
        self._number = 0
        # Whether a capture is being recorded.
        self.is_on = False
        self._began_ns = 0
        # `(start, end, capture number)` of each replay in the profiled iterations.
        self._replays: list[tuple[int, int, int | None]] = []

    def begin(self, number: int) -> bool:
        """Starts recording the capture that is about to begin. Returns whether it does."""
        full = len(self._done) >= _MAX_CAPTURES
        if full or self.is_on or torch.autograd._profiler_enabled():
            return False
        # Before CUDA 12.6, CUPTI crashed if graphs were in use and it was started again after
        # Kineto had shut it down. torch.compile documents that and disables the shutdown in the
        # same way.
        os.environ.update({"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"})
        start_kineto(on_cuda=True, memory=False)
        self._number = number
        self.is_on = True
        self._began_ns = time_ns()
        return True

    def end(self) -> None:
        """The capture has ended."""
        if not self.is_on:
            return
        self.is_on = False
        results = torch._C._autograd._disable_profiler()
        ended_ns = time_ns()
        # Read immediately, because Kineto's results point into buffers that its next start reuses.
        events = _events(results, os.path.join(self._folder, "capture.json"))
        self._done[self._number] = (self._began_ns, ended_ns, events)

    def replayed(self, began_ns: int, number: int | None) -> None:
        """A graph was replayed in a profiled iteration."""
        self._replays.append((began_ns, time_ns(), number))

    def forget_replays(self) -> None:
        """Forgets the replays, because the profiled iterations are discarded."""
        self._replays.clear()

    @property
    def replays(self) -> int:
        """The number of graph replays in the profiled iterations."""
        return len(self._replays)

    def json(self) -> dict[str, object]:
        """Returns `cuda_graphs` for the manifest."""
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
        """Adds the events of replayed captures to Kineto's trace. The process is in its folder."""
        replayed = {number for _, _, number in self._replays if number is not None}
        events: list[str] = []
        for number, (_, _, capture_events) in self._done.items():
            if number in replayed:
                events += capture_events
        if events:
            _add_events(path, events)


def start_kineto(on_cuda: bool, memory: bool) -> Any:
    """Starts torch's profiler on this thread; `_disable_profiler` stops it.

    Configuration and start are those of torch's own profiler. Its stop is not used, because it
    would create Python objects for all events.
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
    """Returns the operators of a capture and the calls that created its nodes, as JSON."""
    results.save(path)
    make_private(path)
    try:
        if os.path.getsize(path) > _MAX_TRACE_BYTES:
            return []
        with open(path, encoding="utf-8", errors="replace") as file:
            events = load(file)["traceEvents"]
    finally:
        os.remove(path)
    # Launches of other threads meanwhile ran immediately, and are in no graph.
    ran = {
        event.get("args", {}).get("correlation")
        for event in events
        if event.get("cat") in _DEVICE_EVENTS
    }
    return [
        dumps(event)
        for event in events
        if event.get("ph") == "X"
        and event.get("cat") in _HOST_EVENTS
        and event.get("args", {}).get("correlation", 0) not in ran
    ]


def _add_events(path: str, events: list[str]) -> None:
    """Appends events to those of a Chrome trace."""
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        first = max(0, size - _TAIL_BYTES)
        file.seek(first)
        before, bracket, after = file.read().rpartition(b"]")
        if not bracket or not before.rstrip().endswith(b"}"):
            raise ValueError("the trace is truncated")
        file.seek(first + len(before))
        file.write(b",\n" + ",\n".join(events).encode() + bracket + after)
