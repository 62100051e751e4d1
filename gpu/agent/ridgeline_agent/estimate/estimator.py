"""Finds an iteration of a program that runs on hollow tensors, and writes down its operators
(docs/op-list.md).

The first iteration leaves behind what later ones find: gradients and the optimizer's state. The
second is the one that is told, or the first where there is no second.
"""

from __future__ import annotations

import gc
import os
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import nn

from ..failure.exception import describe_failure
from ..iterations.finder import Verdict
from ..iterations.tracker import IterationTracker
from ..patches import hooks
from ..patches.harmless import harmless
from ..patches.overlay import Overlay
from ..program.batch import BatchWatch
from ..program.memory import MemoryWatch, tensors_in
from ..program.modules import ModuleTable
from ..protocol.host import Host
from ..protocol.spec import RunSpec
from ..record import loops
from . import operator_list, workspaces
from .arena import Arena, ArenaFull
from .hollow_tensors import HollowMode, OutOfReach
from .operator_columns import OperatorColumns
from .operator_list import Iteration
from .operator_stacks import OperatorStacks
from .patches.guesses import Guesses
from .peak_memory import MemoryEvents

STAGE = "estimating"
_OTHER = 4
_MOST_UNSUPPORTED = 50


class Estimator:
    """Watches the program of this process. One for each process."""

    def __init__(self, spec: RunSpec, host: Host, overlay: Overlay) -> None:
        self._spec = spec
        tracker = self._tracker = IterationTracker(spec, host, overlay, "the estimate")
        self.guard = tracker.guard
        self._sources = tracker.sources
        self._signals = tracker.signals
        self._finder = tracker.finder
        self._device = torch.device("cpu" if spec.claim == "cpu" else "cuda:0")
        self._stacks = OperatorStacks(self._sources)
        self.arena = Arena()
        self.guesses = Guesses(lambda frame: self._stacks.place(self._stacks.at(frame)))
        self.mode = HollowMode(self._device, self.arena, self.guesses)
        self._calls = hooks.ModuleCalls(self)
        self._unsupported: dict[tuple[int, int, str], str] = {}
        # Phases and module calls that are under way, innermost last.
        self._open: list[int] = []
        self._modules: list[int] = []
        # The stack at the call of the backward pass that is under way.
        self._backward_at = -1
        self._saving = False
        self._stack_before: loops.Frames = []
        self._loop: tuple[int, int] | None = None
        # The iteration before the one that is under way, for a program that ends early.
        self._before: Iteration | None = None
        # What is told if calls of modules tell the iterations and no optimizer steps to the end.
        self._unless_stepped: Iteration | None = None
        self._here = self._new_iteration(BatchWatch())

    # What the process calls.

    def install(self) -> None:
        """Installs every hook. Call it before any of the user's code runs."""
        gc.freeze()
        # Before a backward pass is a sign of an iteration.
        self.mode.measure_sums()
        self._tracker.definitions.install()
        hooks.install(self)
        self._calls.start()
        self.mode.accumulates = self._engine_adds
        self.mode.unsupported = self._is_unsupported
        self._listen()
        self._tracker.host.progress(STAGE, 0, 2)

    def _listen(self) -> None:
        self.mode.observer = self._observed
        self.mode.on_free = self._linked
        self.arena.listener = self._memory_changed

    def _listen_no_more(self) -> None:
        self.mode.observer = self.mode.on_free = self.arena.listener = None

    def provided(
        self, batch_size: int, inputs: object, iterations: tuple[Callable[..., Any], ...]
    ) -> None:
        """A provider made its inputs, for this batch size, and what runs an iteration."""
        self._here.batch.provided(batch_size)
        self._tracker.provided(inputs, iterations)

    @harmless
    def iteration_ended(self) -> None:
        """A provider's iteration has ended."""
        self._decide(self._finder.ended(), sys._getframe(2))

    def ended(self) -> str:
        """The program ended early. Writes what there is; returns the outcome."""
        if self._before is not None and self._tracker.boundaries == 1:
            self.note("the program has only one iteration")
            self._here = self._before
            self._save("complete", None)
            return "complete"
        if self._unless_stepped is not None:
            self._here = self._unless_stepped
            self._save("complete", None)
            return "complete"
        self._save("partial", None)
        return "short"

    def late(self, seconds: float) -> None:
        """The time is nearly over."""
        if self._unless_stepped is None:
            self.cut_short(f"no complete iteration within {seconds} s")
        self._here = self._unless_stepped
        self.cut_short(f"the optimizer did not step within {seconds:g} s")

    def cut_short(self, why: str) -> NoReturn:
        """It can go no further. Writes what ran, and ends the process."""
        self.note(why)
        self._save("partial", None)
        self._tracker.host.finish("short", why)

    def failed(self, error: BaseException) -> None:
        """The program raised. Writes what ran before, and what it raised."""
        if isinstance(error, (OutOfReach, ArenaFull)):
            self.cut_short(str(error))
        self._save("partial", describe_failure(error, self._spec.root, self._sources.file))

    def note(self, text: str) -> None:
        """Notes what a person who reads the estimate should know."""
        self._tracker.notes.add(text)

    # What the mode and the arena call.

    def _observed(
        self, func: Any, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        stack = self._stacks.at(sys._getframe(2))
        module = self._modules[-1] if self._modules else -1
        phase = self._open[-1] if self._open else -1
        if phase == hooks.BACKWARD:
            stack, module = self._here.columns.in_backward(stack, module, self._backward_at)
        linked = self._here.columns.link(stack, module)
        if phase < 0:
            # A loss outside of every module is part of the forward pass all the same.
            phase = hooks.FORWARD if linked else _OTHER
        columns = self._here.columns
        if self._device.type == "cpu":
            held = workspaces.in_passing(func._schema.name, args)
            if held:
                kept = sum(part.untyped_storage().nbytes() for part in tensors_in(result))
                self._here.events.in_passing(held - kept, len(columns))
        columns.add(func, key, args, kwargs, result, (phase, stack, module))
        if columns.full:
            self.cut_short("the iteration has too many operators for an operator list")

    def _engine_adds(self) -> bool:
        """Whether no code of the user's runs within the backward pass."""
        if not self._open or self._open[-1] != hooks.BACKWARD or torch.is_grad_enabled():
            return False
        return self._stacks.at(sys._getframe(2)) in (self._backward_at, -1)

    def _linked(self) -> None:
        """A view bears a backward node as well."""
        if not self._here.columns.is_linked():
            module = self._modules[-1] if self._modules else -1
            self._here.columns.link(self._stacks.at(sys._getframe(2)), module)

    def _memory_changed(self, address: int, size: int) -> None:
        self._here.events.add(address, size, len(self._here.columns))

    def _is_unsupported(self, name: str, message: str) -> None:
        place = self._stacks.place(self._stacks.at(sys._getframe(1)))
        if place is not None and len(self._unsupported) < _MOST_UNSUPPORTED:
            self._unsupported.setdefault((*place, name), message)

    # What the hooks call (hooks.Listener).

    @harmless
    def phase_entered(self, phase: int) -> bool:
        outermost = phase not in self._open
        self._open.append(phase)
        if phase == hooks.BACKWARD and outermost:
            self._backward_at = self._stacks.at(sys._getframe(2))
        self._look_or_pass()
        return outermost

    @harmless
    def phase_left(self, phase: int) -> None:
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at] == phase:
                del self._open[at:]
                break
        self._look_or_pass()

    def _look_or_pass(self) -> None:
        innermost = self._open[-1] if self._open else -1
        self.mode.in_passing = innermost in (hooks.BACKWARD, hooks.OPTIMIZER)
        self.guesses.quiet = innermost == hooks.OPTIMIZER

    @harmless
    def loaded(self, loader: object, batch: object) -> None:
        self._here.batch.loaded(loader, batch)
        self._here.memory.loaded(batch)

    def ran_out(self, loader: object) -> None:
        """An estimate times no loader."""

    @harmless
    def went_backward(self) -> None:
        if not self._signals.on_our_thread():
            return
        self._here.memory.went_backward()
        frame = sys._getframe(2)
        self._decide(self._tracker.went_backward(frame), frame)

    @harmless
    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        self._tracker.optimizer_made(optimizer)

    @harmless
    def stepped(self, optimizer: object) -> None:
        if not self._signals.on_our_thread():
            return
        if hooks.OPTIMIZER in self._open:
            self._finder.stepped_within(id(optimizer))
            return
        frame = sys._getframe(2)
        self._decide(self._tracker.stepped(optimizer, frame), frame)

    @harmless
    def module_entered(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        index = self._here.table.index_of_called(module)
        if not self._modules:
            inputs = (args, kwargs)
            self._here.batch.given((id(module), self._signals.place(sys._getframe(2))), inputs)
            if not self._here.batch.has_loader:
                self._here.memory.given(inputs)
        self._modules.append(-1 if index is None else index)
        innermost = self._open[-1] if self._open else -1
        # A transform of the loader's may be a module, and a part that is run again in the
        # backward pass is one.
        within = innermost in (hooks.BACKWARD, hooks.DATA)
        self._open.append(innermost if within else hooks.FORWARD)
        self._look_or_pass()

    @harmless
    def module_left(self, module: nn.Module) -> None:
        if self._modules:
            self._modules.pop()
        if self._open:
            self._open.pop()
        self._look_or_pass()
        is_signal = not self._modules and self._tracker.is_found_by_modules
        if is_signal and self._signals.on_our_thread():
            frame = sys._getframe(2)
            self._decide(self._tracker.called(module, frame), frame)

    # The iterations.

    def _decide(self, verdict: Verdict, frame: types.FrameType) -> None:
        if verdict is Verdict.NOTHING or self._saving:
            return
        if verdict is Verdict.RESTART:
            may_restart = self._tracker.may_restart()
            if may_restart or self._unless_stepped is not None:
                # What ran so far was no iteration; the next one is.
                self._tracker.boundaries = 0
                self._before = self._unless_stepped = None
                self._listen()
                self._begin(frame)
                return
        if self._unless_stepped is not None:
            return
        self._tracker.boundaries += 1
        self._sources.read_texts_of_files(self._tracker.began_ns)
        self._tracker.host.progress(STAGE, self._tracker.boundaries, 2)
        self._loop = self._found_loop(frame) or self._loop
        if self._tracker.boundaries == 2 and self._finder.may_be_better:
            # Reinforcement learning plays hundreds of steps before it learns from them. A recording
            # is made first and waits then (record/extra/signal_grace_period.py); here waiting is
            # all that there is to do.
            self._listen_no_more()
            self._unless_stepped = self._here
            self._here = self._new_iteration(self._here.batch.next_iteration())
            return
        if self._tracker.boundaries == 2:
            self._save("complete", None, frame)
            self._tracker.host.finish("complete")
        # Described at the end alone: to read a frame's variables may keep what they hold.
        self._before = self._here
        self._begin(frame)

    def _new_iteration(self, batch: BatchWatch) -> Iteration:
        return Iteration(
            OperatorColumns(),
            ModuleTable(self._tracker.definitions),
            batch,
            MemoryWatch(self._device),
            MemoryEvents(self._counts, self._device.type == "cuda"),
        )

    def _begin(self, frame: types.FrameType) -> None:
        """An iteration begins."""
        here = self._here = self._new_iteration(self._here.batch.next_iteration())
        optimizers = self._signals.optimizers()
        here.table.build(optimizers)
        here.memory.begin(here.table, optimizers, self._tracker.inputs)
        here.events.begin(here.memory, self.arena.alive)
        self._stack_before = loops.stack_frames(frame, self._sources)

    def _counts(self, address: int) -> bool:
        return self._device.type == "cpu" or address >= self.arena.middle

    def _found_loop(self, frame: types.FrameType) -> tuple[int, int] | None:
        after = loops.stack_frames(frame, self._sources)
        lines = self._stacks.lines(self._here.columns.stacks())
        return loops.find_loop(self._stack_before, after, lines, self._sources)

    # The list.

    def _save(
        self,
        outcome: str,
        failure: dict[str, object] | None,
        frame: types.FrameType | None = None,
    ) -> None:
        self._saving = True
        self._listen_no_more()
        if self._unsupported:
            outcome = "partial"
        listed = self._here.json(self._sources, self._signals.optimizers(), frame)
        self._write({**listed, "outcome": outcome, "failure": failure})

    def _write(self, listed: dict[str, Any]) -> None:
        for function in self._tracker.iterations:
            self._loop = loops.definition(function, self._sources) or self._loop
        whole = {
            "version": operator_list.VERSION,
            "torch": str(torch.__version__),
            "device": self._device.type,
            "found_by": self._finder.found_by,
            "stacks": self._stacks.json(),
            **listed,
            "loop": None if self._loop is None else dict(zip(("file", "line"), self._loop)),
            "guessed": self.guesses.json(),
            "unsupported": [
                {"file": file, "line": line, "operator": name, "message": message}
                for (file, line, name), message in self._unsupported.items()
            ],
            "notes": self._tracker.notes.texts,
        }
        # Last, because everything above may have named a file.
        whole["files"] = self._sources.paths()
        operator_list.write(os.path.abspath(self._spec.out), whole)
