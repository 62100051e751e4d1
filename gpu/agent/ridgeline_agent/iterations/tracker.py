"""Follows the program of this process from one iteration to the next: what a measured run and an
estimate have in common.
"""

from __future__ import annotations

import os
import time
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..patches.harmless import HookGuard, Notes
from ..patches.module_construction import ConstructionStacks
from ..patches.overlay import Overlay
from ..program.sources import Sources, UserCode
from ..protocol.host import Host
from ..protocol.spec import RunSpec
from .finder import MODULE, IterationFinder, Verdict
from .signals import Signals

# How often the iterations begin again because something was compiled, or what had been taken for
# iterations was none. After that they are taken as they are.
MOST_RESTARTS = 10


class IterationTracker:
    """Turns the calls of the program's thread that trains into boundaries between iterations.

    Args:
        measured_by: As `Notes` has it.
        signals: The period that an earlier run of the program showed, as `IterationFinder` has it.
    """

    def __init__(
        self,
        spec: RunSpec,
        host: Host,
        overlay: Overlay,
        measured_by: str,
        signals: tuple[int, int] | None = None,
    ) -> None:
        self.host = host
        self.began_ns = time.time_ns()
        self.notes = Notes(measured_by)
        self.guard = HookGuard(self.notes)
        user_code = UserCode(spec.root, spec.user_code, spec.not_user_code, spec.user_packages)
        self.sources = Sources(user_code, overlay)
        self.signals = Signals(self.sources)
        self.finder = IterationFinder(spec.iterations.found_by, signals)
        self.definitions = ConstructionStacks(self.notes.error)
        # What a provider's iterations are given, and what runs one: the first of these that is
        # user code has the line that stands for the loop.
        self.inputs: object = ()
        self.iterations: tuple[Callable[..., Any], ...] = ()
        self.boundaries = 0
        self.restarts = 0

    @property
    def is_found_by_modules(self) -> bool:
        """Whether a call of a module may be the end of an iteration."""
        return self.finder.found_by in (None, MODULE)

    def provided(self, inputs: object, iterations: tuple[Callable[..., Any], ...]) -> None:
        """A provider made its inputs, and what runs an iteration."""
        self.inputs = inputs
        self.iterations = iterations

    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer's constructor was entered."""
        self.finder.optimizer_made()
        self.signals.optimizer_made(optimizer)

    def went_backward(self, frame: types.FrameType) -> Verdict:
        """An outermost backward pass has ended."""
        return self.finder.went_backward(self.signals.place(frame))

    def stepped(self, optimizer: object, frame: types.FrameType) -> Verdict:
        """An optimizer's step has ended."""
        alive = self.signals.optimizer_ids()
        return self.finder.stepped(id(optimizer), self.signals.place(frame), alive)

    def called(self, module: nn.Module, frame: types.FrameType) -> Verdict:
        """An outermost module call has ended."""
        training = module.training and torch.is_grad_enabled()
        return self.finder.called(id(module), self.signals.place(frame), training)

    def may_restart(self) -> bool:
        """Counts a restart of the iterations; returns whether there may be this one."""
        self.restarts += 1
        return self.restarts < MOST_RESTARTS

    def begin_anew(self) -> None:
        """What gave signals so far was no training."""
        self.finder.begin_anew()
        self.boundaries = 0

    def forked(self, host: Host) -> None:
        """In a forked child of the program, which is followed from here on."""
        self.guard.process = os.getpid()
        self.host = host
        self.began_ns = time.time_ns()
        self.signals.forget_thread()
        self.begin_anew()
