"""What is seen of the program's habits: `observed` of the manifest.

Modules are looked at in the iterations that warm up, from the first boundary on: what came before
it need not belong to the loop. While iterations are measured none of it runs, but once: from where
a pass through a loader begins or ends to the end of that iteration, which has what validates now
and then.
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
from .gpu_state import GpuState
from .graph_marks import BackwardPasses
from .line_times import LineTimes
from .padding import Padding
from .recompilations import graph_breaks_json, recompilations_json
from .replicas import Replicas

# Calls what the recording can do without: the name, the function, and its arguments.
Tolerating = Callable[..., Any]


class Observed:
    """Collects all of it; the recorder says what happens."""

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
        # What was left on while iterations were timed.
        self.switches: list[Switch] = []
        self.turns: Turns | None = None
        self.line_times: LineTimes | None = None
        # Whether modules are looked at.
        self.is_looking = False
        # Part of a measured iteration tells of evaluations, and of nothing that is counted.
        self._is_partial = False
        self._may_look_once = True

    def begin(self, anew: bool = False) -> None:
        """An iteration begins that is looked at; `anew` where those before it were none."""
        self.is_looking = True
        self._is_partial = False
        if anew:
            self._may_look_once = True
            self._evaluations.forget()
            self._replicas.forget()
            self._padding.forget()

    def look_once(self) -> bool:
        """Looks at modules to the end of the measured iteration. Returns whether it does."""
        looks, self._may_look_once = self._may_look_once, False
        self.is_looking |= looks
        self._is_partial |= looks
        return looks

    def look_away(self) -> bool:
        """A measured iteration ended. Returns whether modules were looked at in it."""
        was_looking, self.is_looking = self.is_looking, False
        return was_looking

    def entered(
        self,
        module: nn.Module,
        args: Any,
        kwargs: Any,
        is_outermost: bool,
        frame: types.FrameType | None,
    ) -> None:
        """A module is called on the thread that trains, outside of backward passes."""
        if is_outermost:
            self._evaluations.entered(module, frame)
        if not self._is_partial:
            self._padding.entered(module, args, kwargs, frame)

    def gave(self, module: nn.Module, output: Any) -> None:
        """It returned."""
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
        if self.is_looking and not self._is_partial:
            self._replicas.stepped(optimizer)

    def timing_begins(self, device: torch.device) -> None:
        """No module is looked at any more."""
        self.is_looking = False
        self._tolerating("the padding", self._padding.settle)
        self._tolerating("the program's own profilers", self.profilers.timing_begins)
        self._has_anomaly_detection = torch.is_anomaly_enabled()
        self._gpu = self._tolerating("the GPU's state", GpuState.of, device)
        self.look_at_gpu()

    def look_at_gpu(self, now_ns: int | None = None) -> None:
        """Between two timed iterations."""
        if self._gpu is not None:
            self._tolerating("the GPU's state", self._gpu.look, now_ns)

    def timing_ended(self, ranks: frozenset[int] = frozenset()) -> None:
        """Before a profiler of ours starts. `ranks` are the processes of a launched run."""
        what = "the program's own profilers"
        self._tolerating(what, self.profilers.timing_ended)
        self.switches = self._tolerating(what, self.profilers.switches) or []
        if self._has_anomaly_detection and torch.is_anomaly_enabled():
            self.switches.append(anomaly_detection())
        if self._gpu is not None:
            self._tolerating("the GPU's state", self._gpu.look_at_processes, ranks)
        self._tolerating(what, self.profilers.silence)

    def json(self, table: ModuleTable, compiled: CompiledRegions) -> dict[str, object]:
        """`observed` of the manifest."""
        tolerating, lines, gpu = self._tolerating, self.line_times, self._gpu
        turns = self.turns
        return {
            "evaluations": tolerating("the evaluations", self._evaluations.json, table) or [],
            "recompilations": tolerating(
                "recompilations", recompilations_json, self._sources, compiled.asked_at
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
            "gpu": None if gpu is None else tolerating("the GPU's state", gpu.json),
            "distributed": tolerating("the ranks", self._replicas.json, table),
        }
