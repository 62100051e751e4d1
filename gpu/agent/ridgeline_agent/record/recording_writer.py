"""Writes the recording of a measured run: the line log, the trace and, last, the manifest
(docs/recording.md).
"""

from __future__ import annotations

import contextlib
import os
import platform
import types
from collections.abc import Iterator
from typing import Any

import torch

from .. import __version__
from ..iterations.tracker import IterationTracker
from ..program import notebook_cells
from ..program.memory import MemoryWatch
from ..program.modules import optimizers_json
from ..protocol.spec import RunSpec
from . import device, device_activity, line_clock, loops, manifest
from .capture_traces import CaptureTraces
from .patches.child_processes import ChildProcesses
from .profiled_iterations import ProfiledIterations
from .program_watch import ProgramWatch
from .repeated_runs import add_earlier
from .settings import machine_json, settings_json
from .stages import Stage, Stages
from .timed_iterations import TimedIterations


class RecordingWriter:
    """Collects the results of a run's parts."""

    def __init__(
        self,
        spec: RunSpec,
        tracker: IterationTracker,
        program: ProgramWatch,
        timed: TimedIterations,
        profiled: ProfiledIterations,
        traces: CaptureTraces,
        stages: Stages,
        children: ChildProcesses | None,
    ) -> None:
        self.folder = spec.out
        self._spec = spec
        self._tracker = tracker
        self._notes = tracker.notes
        self._program = program
        self._timed = timed
        self._profiled = profiled
        self._traces = traces
        self._stages = stages
        self._children = children
        # Why the profiler recorded no kernel of a GPU that ran operators.
        self._kernels_missing: str | None = None

    def write(
        self, status: str, frame: types.FrameType | None, failure: dict[str, object] | None
    ) -> None:
        """Stops all measurements and writes everything.

        Args:
            status: `complete`, `short` or `failed`.
            frame: The program's current frame, for the names of its variables.
            failure: Why the program failed.
        """
        # Saving the trace changes it, and a running kernel continues.
        with _restored_working_directory():
            self._write(status, frame, failure)

    def _write(
        self, status: str, frame: types.FrameType | None, failure: dict[str, object] | None
    ) -> None:
        tolerating, profiled = self._notes.tolerating, self._profiled
        if self._program.device.type == "cpu" and profiled.windows and profiled.measured_at == 0:
            # torch reports no frees of CPU memory whose allocation it did not see.
            self._notes.add(
                "only one iteration was profiled: memory allocated before it and freed within it "
                "counts as held, "
                "so the true peak may be lower"
            )
        self._stages.stage = Stage.SAVING
        self._stages.progress(0, 1)
        self._stages.stop_extra()
        results = profiled.stop()
        folder = os.path.abspath(self.folder)
        if status == "complete" and profiled.windows:
            profiled.log.save(os.path.join(folder, "lines.bin"))
            self._program.loader_batches.save(folder)
            manifest.save_trace(results, folder)
            tolerating("the search for kernels", self._look_for_kernels)
            tolerating("the traces of captures", self._traces.add_to_trace, manifest.TRACE)
        if status == "complete" and (note := self._program.forward_only.note()) is not None:
            self._notes.add(note)
        if self._children is not None and (note := self._children.note()) is not None:
            self._notes.add(note)
        if (note := notebook_cells.note()) is not None:
            self._notes.add(note)
        written = self._manifest(status, frame, failure)
        if status == "complete":
            tolerating("the times of earlier runs", add_earlier, written, self._spec)
        manifest.write_manifest(folder, written)
        self._stages.progress(1, 1)

    def _look_for_kernels(self) -> None:
        """Detects a GPU profile without kernels, which is wrong if the GPU had work to do."""
        on = self._program.device
        if on.type != "cuda" or device_activity.has_activity(manifest.TRACE):
            return
        before, now = self._profiled.allocations, device_activity.allocations(on)
        gave_memory = before is not None and now is not None and now > before
        if gave_memory or self._traces.replays:
            self._kernels_missing = device_activity.why_missing()

    def _manifest(
        self, status: str, frame: types.FrameType | None, failure: dict[str, object] | None
    ) -> dict[str, object]:
        complete = status == "complete"
        tracker, program, profiled = self._tracker, self._program, self._profiled
        sources, tolerating = tracker.sources, tracker.notes.tolerating
        facts = device.device_json(program.device)
        # Modules first: their constructors may be in files that no logged line is in.
        optimizers = tracker.signals.optimizers()
        modules: Any = []
        if complete:
            what = "the table of modules"
            modules = tolerating(what, program.table.json, sources, optimizers, frame)
        owned = tolerating("the optimizers", optimizers_json, optimizers, program.table)
        sparsity = tolerating("the zeros in activations", program.sparsity.json, program.table)
        settings = tolerating("the settings", settings_json, program.device, program.settings)
        compiled = program.compiled.json()
        observed = program.observed.json(program.table, program.compiled) if complete else {}
        memory, batch = profiled.measured or (MemoryWatch(program.device), program.batch)
        tolerating("the names of weights", memory.name_weights, frame)
        iterations = self._iterations(status)
        sources.read_texts(tracker.began_ns)
        loop = self._loop()
        event_ns = tolerating("the time of a line event", line_clock.event_ns, sources)
        return {
            "schema": manifest.SCHEMA,
            "agent": __version__,
            "status": status,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "platform": manifest.platform_name(),
            "device": facts,
            "machine": machine_json(),
            "settings": settings or {},
            "entry": self._entry(),
            "files": sources.files_json(),
            "codes": sources.codes_json(),
            "expressions": self._profiled.expressions.json(sources),
            "threads": profiled.log.threads_json(),
            "iterations": iterations,
            "loop": None if loop is None else {"file": loop[0], "line": loop[1]},
            "library": profiled.library if complete else None,
            "batch": program.forward_only.with_unit(batch.json()),
            "modules": modules or [],
            "optimizers": owned or [],
            "loaders": program.loader_times.json(),
            "sparsity": sparsity or [],
            "memory": memory.json(facts["capacity_bytes"]),
            "observed": observed,
            "kernels_missing": self._kernels_missing,
            "cuda_graphs": self._traces.json() if complete else None,
            "compiled": compiled,
            "shares_from": "eager" if self._spec.eager else None,
            "child_processes": None if self._children is None else self._children.trainers(),
            "line_log": {**profiled.log.json(), "event_ns": event_ns},
            "failure": failure,
            "notes": tracker.notes.texts,
        }

    def _iterations(self, status: str) -> dict[str, object]:
        """Returns `iterations` for the manifest."""
        complete = status == "complete"
        finder, timer, profiled = self._tracker.finder, self._timed.timer, self._profiled
        found = timer.rhythm() if complete else None
        grouping = finder.grouping_at_end() if status == "short" else None
        return {
            "found_by": finder.found_by if grouping is None else grouping.found_by,
            "steps_per_iteration": finder.signals_per_iteration
            if grouping is None
            else grouping.every,
            "first_signals": 0 if grouping is None else grouping.first,
            "runs": 1,
            "warmup": self._stages.warmed_up,
            "seen": self._tracker.boundaries if grouping is None else grouping.count,
            "signals": dict(finder.seen),
            "timed_ns": timer.wall_ns() if complete else [],
            "timed_device_ns": timer.device_ns() if complete else [],
            "timed_waited_ns": timer.waited_ns() if complete else [],
            "timed_phases": self._timed.phases_json() if complete else {},
            "slow": [] if found is None else list(found.slow),
            "period": None if found is None else found.period,
            "slow_stacks": self._slow_stacks(() if found is None else found.slow),
            "joules": timer.joules() if complete else None,
            "profiled": [list(window) for window in profiled.windows],
            "measured": profiled.measured_at if complete and profiled.windows else None,
        }

    def _slow_stacks(self, slow: tuple[int, ...]) -> list[dict[str, object]]:
        stacks, tolerating = self._timed.timer.stacks, self._tracker.notes.tolerating
        if stacks is None:
            return []
        what = "the lines of slow iterations"
        return tolerating(what, stacks.json, slow, self._tracker.sources) or []

    def _loop(self) -> tuple[int, int] | None:
        """Returns `(file, line)` of the loop, or of the function for a provider's iteration."""
        tracker, found_loops = self._tracker, self._profiled.found_loops
        for function in tracker.iterations:
            what = "the search for the iteration"
            found: tuple[int, int] | None
            found = tracker.notes.tolerating(what, loops.definition, function, tracker.sources)
            if found is not None:
                return found
        return max(found_loops, key=lambda at: (found_loops[at], at), default=None)

    def _entry(self) -> dict[str, object]:
        entry = self._spec.entry
        if entry.kind == "module":
            return {"kind": entry.kind, "name": entry.target}
        path = self._tracker.sources.user_code.path(entry.target)
        return {"kind": entry.kind, "path": path or os.path.basename(entry.target)}


@contextlib.contextmanager
def _restored_working_directory() -> Iterator[None]:
    try:
        here = os.getcwd()
    except OSError:
        # The program removed it.
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.chdir(here)
