"""Observations of how the program uses PyTorch: `observed` of the manifest.

Modules are inspected in the warm-up iterations from the first boundary on, because what came before
need not belong to the loop. In measured iterations they are not inspected, with one exception: from
the beginning or end of a pass through a loader to the end of that iteration, where occasional
validation happens.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...program.modules import ModuleTable
from ...program.sources import Sources
from ..patches.compiled import CompiledRegions
from ..patches.own_profilers import OwnProfilers
from ..switched_off import Switch, Turns, anomaly_detection
from .evaluations import Evaluations
from .fast_lines import FastLines
from .gpu_state import GpuState
from .graph_marks import BackwardPasses
from .line_times import LineTimes
from .padding import Padding
from .recompilations import compilations_so_far, graph_breaks_json, recompilations_json
from .replicas import Replicas

# Calls something optional: name, function, and its arguments.
Tolerating = Callable[..., Any]


class Observed:
    """Collects all observations. The recorder calls its methods."""

    def __init__(self, sources: Sources, tolerating: Tolerating) -> None:
        self._sources = sources
        self._tolerating = tolerating
        self._passes = BackwardPasses()
        self._evaluations = Evaluations(sources, self._passes)
        self._replicas = Replicas(self._passes)
        self._padding = Padding(sources)
        self._gpu: GpuState | None = None
        self.profilers = OwnProfilers(sources)
        self._has_anomaly_detection = False
        # Debugging settings that were left on while iterations were timed.
        self.switches: list[Switch] = []
        self.may_switch = True
        self.turns: Turns | None = None
        self.line_times: LineTimes | None = None
        self.fast_lines: FastLines | None = None
        self._compiled_first: frozenset[str] = frozenset()
        # Whether modules are being inspected.
        self.is_inspecting = False
        # A part of a measured iteration shows evaluations, but its counts are incomplete.
        self._is_partial = False
        self._may_inspect_once = True

    def begin(self, discards_previous: bool = False) -> None:
        """Begins to inspect an iteration. `discards_previous` discards the previous ones."""
        self.is_inspecting = True
        self._is_partial = False
        if discards_previous:
            self._may_inspect_once = True
            self._evaluations.forget()
            self._replicas.forget()
            self._padding.forget()

    def inspect_once(self) -> bool:
        """Inspects modules until the end of the measured iteration. Returns whether it does."""
        inspects, self._may_inspect_once = self._may_inspect_once, False
        self.is_inspecting |= inspects
        self._is_partial |= inspects
        return inspects

    def stop_inspecting(self) -> bool:
        """Stops inspecting after a measured iteration. Returns whether modules were inspected in
        it.
        """
        was_inspecting, self.is_inspecting = self.is_inspecting, False
        return was_inspecting

    def entered(
        self,
        module: nn.Module,
        args: Any,
        kwargs: Any,
        is_outermost: bool,
        frame: types.FrameType | None,
    ) -> None:
        """A module is called on the training thread, outside of backward passes."""
        if is_outermost:
            self._evaluations.entered(module, frame)
        if not self._is_partial:
            self._padding.entered(module, args, kwargs, frame)

    def gave(self, module: nn.Module, output: Any) -> None:
        """A module returned."""
        self._evaluations.gave(module, output)
        if not self._is_partial:
            self._replicas.gave(module, output)

    def left(self) -> None:
        """An outermost call ended."""
        self._evaluations.left()
        if not self._is_partial:
            self._padding.left()

    def went_backward(self) -> None:
        """A backward pass ended."""
        self._passes.number += 1

    def stepped(self, optimizer: object) -> None:
        """An optimizer has stepped."""
        if self.is_inspecting and not self._is_partial:
            self._replicas.stepped(optimizer)

    def first_iteration_ended(self) -> None:
        """The first iteration has ended."""
        what = "the compilations"
        self._compiled_first = self._tolerating(what, compilations_so_far) or frozenset()

    def timing_begins(self, device: torch.device) -> None:
        """Stops inspecting modules, because the timing begins."""
        self.is_inspecting = False
        self._tolerating("the padding", self._padding.settle)
        self._tolerating("the program's own profilers", self.profilers.timing_begins)
        self._has_anomaly_detection = torch.is_anomaly_enabled()
        self._gpu = self._tolerating("the GPU's state", GpuState.of, device)
        self.query_gpu()

    def query_gpu(self, now_ns: int | None = None) -> None:
        """Queries the GPU between two timed iterations."""
        if self._gpu is not None:
            self._tolerating("the GPU's state", self._gpu.query, now_ns)

    def timing_ended(self, ranks: frozenset[int] = frozenset()) -> None:
        """Called before our own profiler starts. `ranks` are the processes of a launched run."""
        what = "the program's own profilers"
        self._tolerating(what, self.profilers.timing_ended)
        if self.may_switch:
            self.switches = self._tolerating(what, self.profilers.switches) or []
        if self.may_switch and self._has_anomaly_detection and torch.is_anomaly_enabled():
            self.switches.append(anomaly_detection())
        if self._gpu is not None:
            self._tolerating("the GPU's state", self._gpu.query_processes, ranks)
        self._tolerating(what, self.profilers.silence)

    def json(self, table: ModuleTable, compiled: CompiledRegions) -> dict[str, object]:
        """Returns `observed` for the manifest."""
        tolerating, lines, gpu = self._tolerating, self.line_times, self._gpu
        turns, fast = self.turns, self.fast_lines
        return {
            "evaluations": tolerating("the evaluations", self._evaluations.json, table) or [],
            "recompilations": tolerating(
                "recompilations",
                recompilations_json,
                self._sources,
                compiled.requested_at,
                self._compiled_first,
            )
            or [],
            "graph_breaks": tolerating("graph breaks", graph_breaks_json, self._sources, compiled)
            or [],
            "padding": tolerating("the padding", self._padding.json, table) or [],
            "profilers": tolerating("the program's own profilers", self.profilers.json) or [],
            "switched_off": []
            if turns is None
            else tolerating("disabled settings", turns.json) or [],
            "line_times": []
            if lines is None
            else tolerating("the times of lines", lines.json) or [],
            "line_times_disturbed": lines is not None and lines.is_disturbed,
            "fast_lines": []
            if fast is None
            else tolerating("the time of fast lines", fast.json) or [],
            "gpu": None if gpu is None else tolerating("the GPU's state", gpu.json),
            "distributed": tolerating("the ranks", self._replicas.json, table),
        }
