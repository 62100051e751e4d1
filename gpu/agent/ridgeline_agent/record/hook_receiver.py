"""Receives the calls of the hooks into torch, and forwards them to the parts of a measured run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..iterations.tracker import IterationTracker
from ..patches import hooks
from ..patches.harmless import harmless
from ..system import threads
from . import line_clock
from .capture_traces import CaptureTraces
from .patches.child_processes import ChildProcesses
from .profiled_iterations import ProfiledIterations
from .program_watch import ProgramWatch
from .sparsity import SPARSE_TYPES
from .stages import Stage, Stages


class HookReceiver:
    """The listener of the hooks (`hooks.Listener`). They are called often, so this does no more
    than necessary.

    Args:
        ignore: Stops measuring in this process.
    """

    def __init__(
        self,
        tracker: IterationTracker,
        program: ProgramWatch,
        profiled: ProfiledIterations,
        traces: CaptureTraces,
        stages: Stages,
        children: ChildProcesses | None,
        ignore: Callable[[], None],
    ) -> None:
        self.guard = tracker.guard
        self._tracker = tracker
        self._signals = tracker.signals
        self._finder = tracker.finder
        self._program = program
        self._open = program.open
        self._observed = program.observed
        self._graphs = program.graphs
        self._loader_times = program.loader_times
        self._profiled = profiled
        self._log = profiled.log
        self._traces = traces
        self._stages = stages
        self._children = children
        self._ignore = ignore
        # Whether the training thread is in a backward pass.
        self._is_in_backward = False

    @harmless
    def phase_entered(self, phase: int) -> bool:
        stages = self._stages
        if stages.before_first:
            stages.begin_without_warm_up()
        outermost = self._open.enter(phase)
        if phase == hooks.BACKWARD and self._signals.may_be_our_thread():
            self._is_in_backward = True
        times = stages.open_phase_times()
        if times is not None and self._signals.on_our_thread():
            times.entered(phase)
        if self._profiled.is_on or self._traces.is_on:
            self._log.add(line_clock.PHASE_ENTER, phase)
        if phase == hooks.DATA and self._signals.may_be_our_thread():
            self._loader_times.begins()
        return outermost

    @harmless
    def phase_left(self, phase: int) -> None:
        if phase == hooks.DATA and self._signals.may_be_our_thread():
            self._loader_times.ends()
        self._open.leave(phase)
        if phase == hooks.BACKWARD and self._signals.may_be_our_thread():
            self._is_in_backward = self._open.has(phase)
        times = self._stages.open_phase_times()
        if times is not None and self._signals.on_our_thread():
            times.left(phase)
        if self._profiled.is_on or self._traces.is_on:
            self._log.add(line_clock.PHASE_EXIT, phase)

    @harmless
    def loaded(self, loader: object, batch: object) -> None:
        program, profiled, stages = self._program, self._profiled, self._stages
        program.forward_only.has_loader = True
        program.loader_batches.loaded(loader, batch, measured=profiled.is_on)
        program.batch.declared_by(loader)
        if stages.stage is Stage.WARM_UP:
            program.out_of_memory.loaded(loader, batch)
        if self._signals.may_be_our_thread():
            is_timed = stages.open_phase_times() is not None
            self._loader_times.loaded(loader, is_timed, batch)
            if getattr(loader, "_num_yielded", None) == 1:
                self._passed()
        if profiled.is_on and self._signals.on_our_thread():
            program.batch.loaded(loader, batch)
            if profiled.memory is not None:
                profiled.memory.loaded(batch)

    @harmless
    def ran_out(self, loader: object) -> None:
        if self._signals.may_be_our_thread():
            self._loader_times.ran_out(loader)
            self._passed()

    def _passed(self) -> None:
        """A pass through a loader began or ended, so validation may follow."""
        if self._stages.is_measuring() and self._observed.inspect_once():
            self._program.inspect_all_modules()

    @harmless
    def went_backward(self, extends_graph: bool) -> None:
        program, profiled = self._program, self._profiled
        if not self._tracker.trains_here():
            program.others_go_backward = True
            if profiled.memory is not None:
                profiled.memory.others_go_backward = True
            return
        if not self._is_recorded():
            return
        capture = self._graphs.open
        if capture is not None:
            capture.went_backward()
            return
        if profiled.is_on:
            program.settings.observe(program.device)
        if profiled.is_on and profiled.memory is not None:
            profiled.memory.went_backward()
        self._observed.went_backward()
        frame = sys._getframe(2)
        within_step = self._open.has(hooks.OPTIMIZER)
        verdict = self._tracker.went_backward(frame, within_step, extends_graph)
        self._stages.decide(verdict, frame)

    @harmless
    def optimizer_created(self, optimizer: torch.optim.Optimizer) -> None:
        self._tracker.optimizer_created(optimizer)

    @harmless
    def stepped(self, optimizer: object) -> None:
        if not self._tracker.trains_here():
            # Autograd runs a GPU's operators, and the hooks between them, on a thread of its own.
            if self._is_in_backward and threads.is_of_autograd():
                self._tracker.stepped_in_backward(optimizer)
            return
        if not self._is_recorded():
            return
        capture = self._graphs.open
        if capture is not None:
            capture.stepped(optimizer)
            return
        self._observed.stepped(optimizer)
        if self._open.has(hooks.OPTIMIZER):
            self._finder.stepped_within(id(optimizer))
            return
        if self._open.has(hooks.BACKWARD):
            self._tracker.stepped_in_backward(optimizer)
            return
        frame = sys._getframe(2)
        self._stages.decide(self._tracker.stepped(optimizer, frame), frame)

    @harmless
    def module_entered(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        program, stages = self._program, self._stages
        outermost = self._open.call()
        if stages.before_first:
            stages.begin_without_warm_up()
        if self._profiled.is_on or self._traces.is_on:
            log = self._log
            if outermost and self._open.innermost() != hooks.BACKWARD:
                log.add(line_clock.PHASE_ENTER, hooks.FORWARD)
                if self._signals.on_our_thread():
                    self._given(module, args, kwargs)
            index = program.table.index_of_called(module)
            if index is not None:
                log.add(line_clock.MODULE_ENTER, index)
            program.settings.observe(program.device)
        elif outermost and stages.stage is Stage.WARM_UP:
            stages.model_called()
            program.out_of_memory.given((args, kwargs))
        if outermost and self._tracker.is_found_by_modules:
            program.forward_only.given(module, args, kwargs)
        if self._observed.is_inspecting and self._is_inspected():
            self._observed.entered(module, args, kwargs, outermost, sys._getframe(2))

    def _given(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """An outermost module is called in a logged iteration."""
        program, memory = self._program, self._profiled.memory
        inputs = (args, kwargs)
        places = self._signals.places(sys._getframe(3))
        capture = self._graphs.open
        batch = program.batch if capture is None else capture.batch
        batch.given((id(module), places), inputs)
        # A loader's batch is copied to the GPU, and the model gets the copy.
        is_copied = program.device.type == "cuda"
        if memory is not None and (is_copied or not program.batch.has_loader):
            memory.given(inputs)

    @harmless
    def module_gave(self, module: nn.Module, output: Any) -> None:
        """A module returned (`hooks.ModuleCalls`)."""
        if self._observed.is_inspecting and self._is_inspected():
            self._observed.gave(module, output)
        stages = self._stages
        is_warm_up = stages.stage is Stage.WARM_UP and not stages.before_first
        if self._tracker.boundaries > 0 or not is_warm_up:
            return
        if type(module) in SPARSE_TYPES and self._graphs.open is None:
            # Once, in the first warm-up iteration.
            self._program.sparsity.gave(module, output)

    @harmless
    def module_left(self, module: nn.Module) -> None:
        outermost = self._open.called()
        if outermost and self._observed.is_inspecting and self._is_inspected():
            self._observed.left()
        if self._profiled.is_on or self._traces.is_on:
            index = self._program.table.index_of_called(module)
            if index is not None:
                self._log.add(line_clock.MODULE_EXIT, index)
            if outermost and self._open.innermost() != hooks.BACKWARD:
                self._log.add(line_clock.PHASE_EXIT, hooks.FORWARD)
        if not outermost:
            return
        is_signal = self._tracker.is_found_by_modules and self._graphs.open is None
        # Checkpointing calls modules in the backward pass.
        is_signal = is_signal and not self._open.has(hooks.BACKWARD)
        if is_signal and self._signals.on_our_thread():
            frame = sys._getframe(2)
            self._stages.decide(self._tracker.called(module, frame), frame)

    def _is_inspected(self) -> bool:
        """Whether a call belongs to the forward passes of the training thread."""
        # The inspection computes with tensors, which must not be captured in a graph.
        is_captured = self._graphs.open is not None
        return (
            self._signals.may_be_our_thread()
            and not self._open.has(hooks.BACKWARD)
            and not is_captured
        )

    def _is_recorded(self) -> bool:
        """Whether this process is the one that is recorded."""
        children = self._children
        if children is None or children.is_ours or children.is_recorded():
            return True
        if children.is_decided:
            self._ignore()
        return False
