"""What a measured run knows about the program: its modules, batches, loaders, optimizers and
settings.

The hooks add to it (`hook_receiver`), and the manifest is written from it (`recording_writer`).
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from ..failure.out_of_memory import OutOfMemoryWatch
from ..iterations.finder import MODULE
from ..iterations.forward_only import ForwardOnly
from ..iterations.tracker import IterationTracker
from ..patches import hooks
from ..program.batch import BatchWatch
from ..program.modules import ModuleTable
from ..program.open_phases import OpenPhases
from .loader_batches import LoaderBatches
from .observed.collector import Observed
from .patches.compiled import CompiledRegions
from .patches.cuda_graphs import CudaGraphs
from .patches.loaders import LoaderTimes
from .settings import IterationScopedSettings
from .sparsity import Sparsity


class ProgramWatch:
    """Collects facts about the program, and controls which module calls are hooked."""

    # The hook of module calls. Set by `install`.
    calls: hooks.ModuleCalls

    def __init__(self, tracker: IterationTracker) -> None:
        sources = tracker.sources
        self._tracker = tracker
        # The CPU until something is measured.
        self.device = torch.device("cpu")
        self.table = ModuleTable(tracker.constructions)
        self.batch = BatchWatch()
        self.open = OpenPhases()
        self.compiled = CompiledRegions(sources)
        self.graphs = CudaGraphs()
        self.forward_only = ForwardOnly(tracker.finder)
        self.loader_batches = LoaderBatches()
        self.loader_times = LoaderTimes(sources)
        self.observed = Observed(sources, tracker.notes.tolerating)
        self.sparsity = Sparsity()
        self.settings = IterationScopedSettings()
        self.out_of_memory = OutOfMemoryWatch(sources)
        # Whether threads other than the training thread run backward passes.
        self.others_go_backward = False

    def install(
        self, listener: hooks.Listener, calls: hooks.ModuleCalls, eager: bool, in_kernel: bool
    ) -> None:
        """Installs the hooks into torch. Call it before any user code runs, except in a kernel."""
        tolerating = self._tracker.notes.tolerating
        # So that searches for tensors skip the objects from imports, and do not copy pages that are
        # shared with a zygote.
        if not in_kernel:
            gc.freeze()
        self._tracker.constructions.install()
        hooks.install(listener, self._tracker.signals.optimizer_types() if in_kernel else ())
        self.loader_times.install()
        tolerating("the program's own profilers", self.observed.profilers.install)
        if not in_kernel:
            # The allocator's observer cannot be removed.
            tolerating("the watch for out of memory", self.out_of_memory.install)
        self.calls = calls
        self.compiled.install(eager, lambda: calls.function)
        if in_kernel:
            self.compiled.listen_if_used()
            # Nothing of the program is switched off for a measurement.
            self.observed.may_switch = False

    def inspect_all_modules(self) -> None:
        """From now on, hooks every module call and its result."""
        self.calls.of_all = True
        self.calls.start()

    def stop_inspecting(self, is_profiled: bool) -> None:
        """Stops hooking module calls, unless they are profiled or determine the iterations."""
        self.calls.of_all = False
        if not is_profiled:
            self.stop_calls()

    def stop_calls(self) -> None:
        """Stops hooking module calls, unless they determine the iterations."""
        if self._tracker.finder.found_by != MODULE:
            self.calls.stop(keep=self.compiled.is_used)

    def memory_at_failure(self, error: BaseException) -> dict[str, Any] | None:
        """Returns `failure.memory` for the manifest, or None if the error has another cause."""
        table, optimizers = (
            ModuleTable(self._tracker.constructions),
            self._tracker.signals.optimizers(),
        )
        table.build(optimizers)
        return self.out_of_memory.json(error, table, optimizers, self.others_go_backward)
