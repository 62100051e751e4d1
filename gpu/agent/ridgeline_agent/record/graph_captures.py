"""How a measured run handles captures and replays of CUDA graphs."""

from __future__ import annotations

import sys
from time import time_ns
from typing import Any

import torch

from ..iterations.tracker import IterationTracker
from ..patches import hooks
from ..patches.harmless import harmless
from ..protocol.spec import RunSpec
from . import device
from .capture_traces import CaptureTraces
from .patches.cuda_graphs import Capture
from .profiled_iterations import ProfiledIterations
from .program_watch import ProgramWatch
from .stages import Stage, Stages


class GraphCaptures:
    """Receives the calls of the CUDA graph hooks (`patches.cuda_graphs.Listener`)."""

    def __init__(
        self,
        spec: RunSpec,
        tracker: IterationTracker,
        program: ProgramWatch,
        profiled: ProfiledIterations,
        traces: CaptureTraces,
        stages: Stages,
    ) -> None:
        self.guard = tracker.guard
        self._requested_device = spec.device
        self._tracker = tracker
        self._program = program
        self._profiled = profiled
        self._traces = traces
        self._stages = stages

    @harmless
    def capture_begins(self, capture: Capture) -> None:
        if self._stages.stage is Stage.SAVING:
            return
        if capture.is_from_inductor:
            # Like compilation, it belongs to the first iterations.
            self._program.compiled.compilations += 1
            return
        # What ran before was the capture's warm-up, not training.
        if self._tracker.may_restart():
            self._tracker.reset()
            self._stages.warmed_up = 0
            self._stages.restart()
            self._program.observed.begin(discards_previous=True)
        if not self._profiled.is_on and self._tracker.signals.may_be_our_thread():
            self._tracker.notes.tolerating("a trace of the capture", self._trace, capture)

    @harmless
    def capture_ended(self, capture: Capture) -> None:
        if self._traces.is_on:
            self._profiled.clock.stop()
            self._traces.end()
            self._profiled.captured_records = self._profiled.log.position()

    def _trace(self, capture: Capture) -> None:
        program = self._program
        program.device = device.used_device(self._requested_device)
        # One table for everything in the log, because the log refers to modules by their index in
        # it.
        program.table.build(self._tracker.signals.optimizers())
        if self._traces.begin(capture.number):
            program.calls.start()
            self._profiled.clock.start()

    @harmless
    def replay_begins(self, capture: Capture | None) -> object:
        if not self._profiled.is_on or self._program.device.type != "cuda":
            return None
        if capture is not None:
            self._program.batch.replayed(capture.batch)
        # The profiler identifies a launch's thread by the operators that run on it.
        operator: Any = torch._C._profiler._RecordFunctionFast("CUDAGraph.replay")
        operator.__enter__()
        return operator, time_ns()

    @harmless
    def replayed(self, capture: Capture | None, started_replay: Any) -> None:
        if started_replay is not None:
            operator, began_ns = started_replay
            operator.__exit__(None, None, None)
            if capture is None:
                self._traces.replayed(began_ns, None)
            elif not capture.is_from_inductor:
                # Those are divided over their lines like compiled code without graphs.
                self._traces.replayed(began_ns, capture.number)
        phases, signals, finder = self._program.open, self._tracker.signals, self._tracker.finder
        is_part = phases.is_in_call() or phases.has(hooks.BACKWARD) or phases.has(hooks.OPTIMIZER)
        if is_part or not signals.on_our_thread():
            return
        # The signals that the captured code would have given.
        capture = Capture(-1, False) if capture is None else capture
        frame = sys._getframe(2)
        symbol = (capture.number, signals.place(frame))
        alive = signals.optimizer_ids()
        verdict = finder.replayed(capture.strongest_signal, symbol, capture.optimizers, alive)
        self._stages.decide(verdict, frame)
