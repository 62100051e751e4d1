"""Follows the program in this process from iteration to iteration. Shared by measured runs and
estimates.
"""

from __future__ import annotations

import os
import re
import types
from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Any

import torch
from torch import nn

from ..patches.harmless import HookGuard, Notes
from ..patches.module_construction import ConstructionStacks
from ..patches.overlay import Overlay
from ..program.sources import Sources, UserCode
from ..protocol.host import Host
from ..protocol.spec import RunSpec
from ..system import threads
from .finder import BACKWARD, MODULE, IterationFinder, Verdict
from .signals import Signals, is_in_module_call

# The maximum number of restarts, because something was compiled or the iterations were wrong. After
# that, iterations are accepted as they are.
MAX_RESTARTS = 10

# The time to wait for a training step from the first module call, and its maximum share of the time
# limit. A validation before training may be slow. A higher time limit leaves it more time, except
# what the measurement needs.
_SECONDS_TO_WAIT = 20.0
_SHARE_TO_WAIT = 0.4
_SECONDS_TO_MEASURE = 100.0
_STEP = re.compile(rb"\.step\s*\(")
_TRAINING_CODE = re.compile(rb"\.backward\s*\(|(?i:trainer)\w*\.(fit|train)\s*\(")


def seconds_to_wait(limit: float | None) -> float:
    """How long module calls alone do not determine the iterations, with this time limit."""
    if limit is None:
        return _SECONDS_TO_WAIT
    return max(min(_SECONDS_TO_WAIT, limit * _SHARE_TO_WAIT), limit - _SECONDS_TO_MEASURE)


class IterationTracker:
    """Turns calls of the training thread into iteration boundaries.

    Args:
        measured_by: See `Notes`.
        signals: The period from an earlier run of the program, see `IterationFinder`.
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
        self.began_ns = time_ns()
        self.notes = Notes(measured_by)
        self.guard = HookGuard(self.notes)
        user_code = UserCode(spec.root, spec.user_code, spec.not_user_code, spec.user_packages)
        self.sources = Sources(user_code, overlay)
        self.signals = Signals(self.sources)
        self.finder = IterationFinder(spec.iterations.found_by, signals)
        self.constructions = ConstructionStacks(self.notes.error)
        # The inputs of a provider's iterations, and the functions that run one: the first of these
        # that is user code provides the line that stands for the loop.
        self.inputs: object = ()
        self.iterations: tuple[Callable[..., Any], ...] = ()
        self.boundaries = 0
        self.restarts = 0
        self._stepped_in_backward = False
        self._seconds_to_wait = seconds_to_wait(spec.limits.seconds)
        self._first_call_ns: int | None = None

    @property
    def is_found_by_modules(self) -> bool:
        """Whether a module call may end an iteration."""
        return self.finder.found_by in (None, MODULE)

    @property
    def is_found_by_backward(self) -> bool:
        """Whether a backward pass may end an iteration."""
        return self.finder.found_by in (None, MODULE, BACKWARD)

    def trains_here(self) -> bool:
        """Whether this is the training thread, given that it goes backward or steps an optimizer.

        It becomes that if the thread so far only called modules, as one that plays games with the
        model does, or one that serves it.
        """
        if self.signals.on_our_thread():
            return True
        has_only_calls = not self.finder.decided and not self.finder.has_trained
        if not has_only_calls or threads.is_of_autograd():
            return False
        self.signals.claim_thread()
        self.reset()
        return True

    def provided(self, inputs: object, iterations: tuple[Callable[..., Any], ...]) -> None:
        """A provider returned its inputs, and the functions that run an iteration."""
        self.inputs = inputs
        self.iterations = iterations

    def optimizer_created(self, optimizer: torch.optim.Optimizer) -> None:
        self.finder.optimizer_created()
        self.signals.optimizer_created(optimizer)

    def went_backward(
        self, frame: types.FrameType, within_step: bool, extends_graph: bool
    ) -> Verdict:
        """An outermost backward pass has ended, possibly within an optimizer step."""
        if self._stepped_in_backward:
            self._stepped_in_backward = False
            alive = self.signals.optimizer_ids()
            return self.finder.stepped_in_backward(self.signals.place(frame), alive)
        # Gradients that the loss is made of, such as the derivatives of a physical field, or that a
        # model computes, such as forces, are part of a forward pass.
        if extends_graph or (self.is_found_by_backward and is_in_module_call(frame)):
            return Verdict.NOTHING
        if self.finder.found_by is None:
            self._wait_for_training()
        return self.finder.went_backward(self.signals.place(frame), within_step)

    def stepped(self, optimizer: object, frame: types.FrameType) -> Verdict:
        """An optimizer step has ended."""
        self.signals.stepped(optimizer)
        alive = self.signals.optimizer_ids()
        return self.finder.stepped(id(optimizer), self.signals.place(frame), alive)

    def stepped_in_backward(self, optimizer: object) -> None:
        """An optimizer has stepped in a hook of the backward pass. The iteration ends with the
        backward pass: a profiler that starts or stops within it crashes the process.
        """
        self.signals.stepped(optimizer)
        self.finder.stepped_within(id(optimizer))
        self._stepped_in_backward = True

    def called(self, module: nn.Module, frame: types.FrameType) -> Verdict:
        """An outermost module call has ended."""
        if self.finder.found_by is None:
            self._wait_for_training()
        training = module.training and torch.is_grad_enabled()
        return self.finder.called(id(module), self.signals.place(frame), training)

    def _wait_for_training(self) -> None:
        """Decides how long module calls alone do not determine the iterations."""
        now_ns = monotonic_ns()
        if self._first_call_ns is None:
            self._first_call_ns = now_ns
            self.sources.read_texts(self.began_ns)
            if self.sources.mention(_TRAINING_CODE):
                self.finder.expect_training()
            if self.sources.mention(_STEP):
                self.finder.expect_steps()
        elif now_ns - self._first_call_ns > self._seconds_to_wait * 1e9:
            self.finder.hurry(self._seconds_to_wait)

    def may_restart(self) -> bool:
        """Counts a restart of the iterations. Returns whether it is allowed."""
        self.restarts += 1
        return self.restarts < MAX_RESTARTS

    def reset(self) -> None:
        """Discards all signals so far, because they were not training."""
        self.finder.reset()
        self.boundaries = 0

    def forked(self, host: Host) -> None:
        """Continues in a forked child of the program."""
        self.guard.process = os.getpid()
        self.host = host
        self.began_ns = time_ns()
        self._first_call_ns = None
        self.signals.forget_thread()
        self.reset()
