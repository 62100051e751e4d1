"""The profiling stage: iterations with the line clock and Kineto, whose shares divide the time of
the timed iterations. Memory is observed in the first of them.
"""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import types
from collections.abc import Callable
from time import time_ns
from typing import Any

import torch

from ..iterations.tracker import IterationTracker
from ..program import allocator
from ..program.batch import BatchWatch
from ..program.calling_library import calling_library
from ..program.memory import MemoryWatch
from ..program.modules import ModuleTable
from ..protocol.spec import RunSpec
from ..system.filtered_stderr import FilteredStderr
from . import device, device_activity, line_clock, loops
from .capture_traces import start_kineto
from .expressions import Expressions
from .extra.whole_periods import WholePeriods
from .program_watch import ProgramWatch


class ProfiledIterations:
    """The time windows of the profiled iterations, and what was recorded in them.

    Args:
        all_ranks: Waits for all ranks and returns the sum of their numbers.
    """

    def __init__(
        self,
        spec: RunSpec,
        tracker: IterationTracker,
        program: ProgramWatch,
        all_ranks: Callable[[str, int], int],
    ) -> None:
        self.wanted = spec.iterations.profiled
        self._tracker = tracker
        self._guard = tracker.guard
        self._notes = tracker.notes
        self._sources = tracker.sources
        self._program = program
        self._all_ranks = all_ranks
        self.log = line_clock.EventLog(spec.limits.line_events)
        self.expressions = Expressions()
        self.clock = line_clock.line_clock(self.log, tracker.sources, self.expressions)
        # Whether the profiler runs.
        self.is_on = False
        # Holds back Kineto's messages, which nobody but the program would get.
        self.messages: FilteredStderr | None = None
        # Start and end time of each iteration, by the realtime clock.
        self.windows: list[tuple[int, int]] = []
        # Observes the current iteration; None if its memory is not observed.
        self.memory: MemoryWatch | None = None
        # The last iteration whose memory was observed.
        self.measured: tuple[MemoryWatch, BatchWatch] | None = None
        # The package whose function the user's line calls; None if it calls torch.
        self.library: str | None = None
        # The number of iterations that are profiled only for their times, after those with memory.
        self.for_times = 0
        # Time of the current signal, by the realtime clock.
        self.signal_ns = 0
        # End of the line log of captures.
        self.captured_records = 0
        self.found_loops: collections.Counter[tuple[int, int]] = collections.Counter()
        # The number of the GPU's allocations when the profiler started.
        self.allocations: int | None = None
        self._results: Any = None
        self._stack_before: loops.Frames = []
        self._first_record = 0

    @property
    def measured_at(self) -> int:
        """The index of the last profiled iteration whose memory was observed."""
        return min(len(self.windows), self.wanted) - 1

    def times_with_memory(self) -> list[int]:
        """Returns the times of the iterations whose memory was observed, in nanoseconds."""
        return [end - begin for begin, end in self.windows[: self.measured_at + 1]]

    def begin(self, for_times: int) -> None:
        """Starts the profiler and the first iteration."""
        self.for_times = for_times
        self._start()
        self._begin_with_memory(sys._getframe())

    def iteration_ended(self, frame: types.FrameType) -> bool:
        """Returns whether it was the last one. If so, call `stop`, otherwise `begin_next`."""
        is_last = len(self.windows) + 1 >= self.wanted + self.for_times
        self._close_window(frame, is_last)
        if self.library is None:
            # The program may leave the loop before the recording is written.
            what = "the library that runs the loop"
            user_code = self._sources.user_code
            self.library = self._notes.tolerating(what, calling_library, frame, user_code)
        return is_last

    def begin_next(self, frame: types.FrameType) -> None:
        """Begins the next iteration. Memory is observed only in the first ones."""
        if len(self.windows) < self.wanted:
            self._begin_with_memory(frame)
        else:
            self._begin_for_times()

    def stop(self) -> Any:
        """Stops everything that costs time. Returns Kineto's results."""
        self.clock.stop()
        self._program.stop_calls()
        if not self.is_on:
            return self._results
        self.is_on = False
        self._guard.log = None
        # Kept until the process ends, because freeing them takes longer than saving them.
        self._results = torch._C._autograd._disable_profiler()
        if self.messages is not None:
            self.messages.stop()
        return self._results

    def forget(self) -> None:
        """Discards the profiled iterations, because they were not typical. Call `stop` before."""
        self.log.keep(self.captured_records)
        self.windows.clear()
        self.measured = None
        self._results = None

    def ignore(self) -> None:
        """Stops measuring in this process."""
        with contextlib.suppress(Exception):
            self.clock.stop()
            self._program.calls.stop(keep=self._program.compiled.is_used)
            if self.is_on and os.getpid() == self._guard.process:
                # A forked child does not have the threads of its parent's profiler.
                self.stop()
            if self._program.observed.line_times is not None:
                self._program.observed.line_times.stop()

    def again(self, iterations: int, wait: int) -> WholePeriods:
        """Profiles this number of iterations after waiting for some, to replace those that were
        profiled before. If the program ends before the last of them, the earlier ones are kept.
        """
        results, windows, measured = self._results, self.windows, self.measured
        first_record, dropped = self.log.position(), self.log.dropped

        def begins() -> None:
            if not self.is_on:
                self._results, self.windows, self.measured = None, [], None
                self._start()
            self.begin_next(sys._getframe())

        def ended(last: bool) -> None:
            self._close_window(sys._getframe(), last)
            if last and self.log.dropped > dropped:
                abandon()
            elif last:
                self.stop()
                self.log.forget(self.captured_records, first_record)

        def abandon() -> None:
            self.stop()
            self.log.keep(first_record)
            self.log.dropped = dropped
            self._results, self.windows, self.measured = results, windows, measured

        return WholePeriods(iterations, wait, begins, ended, abandon)

    def _start(self) -> None:
        program = self._program
        if self.captured_records == 0:
            program.table = ModuleTable(self._tracker.constructions)
        optimizers = self._tracker.signals.optimizers()
        self._notes.tolerating("the search for modules", program.table.build, optimizers)
        on_cuda = program.device.type == "cuda"
        if on_cuda:
            device.synchronize()
        self.allocations = device_activity.allocations(program.device)
        if self.messages is not None:
            self.messages.start()
        start_kineto(on_cuda=on_cuda, memory=True)
        self.is_on = True
        self._guard.log = self.log
        program.calls.start()
        self.clock.start()

    def _begin_with_memory(self, frame: types.FrameType) -> None:
        program = self._program
        program.batch = program.batch.next_iteration()
        memory = self.memory = MemoryWatch(program.device)
        memory.others_go_backward = program.others_go_backward
        optimizers = self._tracker.signals.optimizers()
        inputs = self._tracker.inputs
        self._notes.tolerating("the baseline", memory.begin, program.table, optimizers, inputs)
        self._stack_before = loops.stack_frames(frame, self._sources)
        self._all_ranks("profiling", 0)
        self._open_window()

    def _begin_for_times(self) -> None:
        """Begins an iteration without observing memory, which would leave cold caches to a fast
        one.
        """
        self._program.batch = self._program.batch.next_iteration()
        self.memory = None
        self._open_window()

    def _open_window(self) -> None:
        self._first_record = self.log.position()
        self.log.add(line_clock.ITERATION, len(self.windows))
        self._guard.iteration_began_ns = time_ns()

    def _close_window(self, frame: types.FrameType, last: bool) -> None:
        on = self._program.device
        if on.type == "cuda":
            # So that all kernels of an iteration are inside of its window.
            device.synchronize()
        self.windows.append((self._guard.iteration_began_ns, time_ns()))
        # The wait and the reading of texts were not the program's. After the last iteration,
        # nothing else marks that time.
        self.log.recorder_ran(self.signal_ns)
        if last:
            self.log.add(line_clock.ITERATION, len(self.windows))
        if self.memory is None:
            return
        self.memory.end()
        if self.memory.is_unknown():
            self._notes.add(f"memory is unknown: {allocator.why_unknown()}")
        if others := device.others_in_use(on):
            self._notes.add(
                f"memory is that of {on}, which uses most; the program also uses "
                f"{', '.join(others)}"
            )
        self.measured = (self.memory, self._program.batch)
        self._notes.tolerating("the search for the loop", self._find_loop, frame)

    def _find_loop(self, frame: types.FrameType) -> None:
        loop = loops.find_loop(
            self._stack_before,
            loops.stack_frames(frame, self._sources),
            loops.lines_in(self.log, self._first_record, self.log.position()),
            self._sources,
        )
        if loop is not None:
            self.found_loops[loop] += 1
