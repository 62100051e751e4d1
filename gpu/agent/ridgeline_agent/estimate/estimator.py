"""Finds an iteration of a program on hollow tensors, and writes its operator list
(docs/op-list.md).

The first iteration creates what later ones reuse: gradients and the optimizer's state. The list is
of the second iteration, or of the first if there is no second.
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
from ..program.random_state import seed_generators
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
_MAX_UNSUPPORTED = 50


class Estimator:
    """Observes the program of this process. One per process."""

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
        # Phases and module calls in progress, innermost last.
        self._open: list[int] = []
        self._modules: list[int] = []
        # The stack at the call of the backward pass in progress.
        self._backward_stack = -1
        self._saving = False
        self._stack_before: loops.Frames = []
        self._loop: tuple[int, int] | None = None
        # The previous iteration, for a program that ends early.
        self._previous: Iteration | None = None
        # The result if module calls determine the iterations and no optimizer steps until the end.
        self._result_without_steps: Iteration | None = None
        self._current = self._new_iteration(BatchWatch())

    # Called by the process.

    def install(self) -> None:
        """Installs every hook. Call it before any user code runs."""
        gc.freeze()
        # An estimate is compared with that of the text before, which has to draw the same numbers
        # where they decide what is computed: the depth of a network, the length of a sentence.
        seed_generators()
        # Before backward passes count as signals.
        self.mode.measure_sums()
        self._tracker.constructions.install()
        hooks.install(self)
        self._calls.start()
        self.mode.accumulates = self._engine_adds
        self.mode.unsupported = self._is_unsupported
        self._start_listening()
        self._tracker.host.progress(STAGE, 0, 2)

    def _start_listening(self) -> None:
        self.mode.observer = self._observed
        self.mode.on_free = self._linked
        self.arena.listener = self._memory_changed

    def _stop_listening(self) -> None:
        self.mode.observer = self.mode.on_free = self.arena.listener = None

    def provided(
        self, batch_size: int, inputs: object, iterations: tuple[Callable[..., Any], ...]
    ) -> None:
        """A provider returned its inputs for this batch size, and the functions that run an
        iteration.
        """
        self._current.batch.provided(batch_size)
        self._tracker.provided(inputs, iterations)

    @harmless
    def iteration_ended(self) -> None:
        """A provider's iteration has ended."""
        self._decide(self._finder.ended(), sys._getframe(2))

    def ended(self) -> str:
        """The program ended early. Writes what was collected and returns the outcome."""
        if self._previous is not None and self._tracker.boundaries == 1:
            self.note("the program has only one iteration")
            self._current = self._previous
            self._save("complete", None)
            return "complete"
        if self._result_without_steps is not None:
            self._current = self._result_without_steps
            self._save("complete", None)
            return "complete"
        self._save("partial" if self._tracker.boundaries else "no_iteration", None)
        return "short"

    def late(self, seconds: float) -> None:
        """The time limit is almost reached. Interrupts the program anywhere."""
        if self._saving:
            return
        if self._result_without_steps is None:
            self.cut_short(f"no complete iteration within {seconds:g} s")
        self._current = self._result_without_steps
        self.cut_short(f"the optimizer did not step within {seconds:g} s")

    def cut_short(self, why: str) -> NoReturn:
        """Ends an estimate that cannot continue. Writes what ran, and ends the process."""
        self.note(why)
        self._save("partial", None)
        self._tracker.host.finish("short", why)

    def failed(self, error: BaseException) -> None:
        """The program raised an exception. Writes it together with what ran before."""
        if isinstance(error, (OutOfReach, ArenaFull)):
            self.cut_short(str(error))
        self._save("partial", describe_failure(error, self._spec.root, self._sources.file))

    def note(self, text: str) -> None:
        """Adds a note for the user about the estimate."""
        self._tracker.notes.add(text)

    # Called by the mode and the arena.

    def _observed(
        self, func: Any, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        stack = self._stacks.at(sys._getframe(2))
        module = self._modules[-1] if self._modules else -1
        phase = self._open[-1] if self._open else -1
        if phase == hooks.BACKWARD:
            stack, module = self._current.columns.in_backward(stack, module, self._backward_stack)
        linked = self._current.columns.link(stack, module)
        if phase < 0:
            # A loss outside of every module still belongs to the forward pass.
            phase = hooks.FORWARD if linked else _OTHER
        columns = self._current.columns
        if self._device.type == "cpu":
            held = workspaces.transient_bytes(func._schema.name, args)
            if held:
                kept = sum(part.untyped_storage().nbytes() for part in tensors_in(result))
                self._current.events.transient(held - kept, len(columns))
        columns.add(func, key, args, kwargs, result, (phase, stack, module))
        if columns.full:
            self.cut_short("the iteration has too many operators for an operator list")

    def _engine_adds(self) -> bool:
        """Whether no user code runs within the backward pass."""
        if not self._open or self._open[-1] != hooks.BACKWARD or torch.is_grad_enabled():
            return False
        return self._stacks.at(sys._getframe(2)) in (self._backward_stack, -1)

    def _linked(self) -> None:
        """Links the backward node of a view."""
        if not self._current.columns.is_linked():
            module = self._modules[-1] if self._modules else -1
            self._current.columns.link(self._stacks.at(sys._getframe(2)), module)

    def _memory_changed(self, address: int, size: int) -> None:
        self._current.events.add(address, size, len(self._current.columns))

    def _is_unsupported(self, name: str, message: str) -> None:
        place = self._stacks.place(self._stacks.at(sys._getframe(1)))
        if place is not None and len(self._unsupported) < _MAX_UNSUPPORTED:
            self._unsupported.setdefault((*place, name), message)

    # Called by the hooks (hooks.Listener).

    @harmless
    def phase_entered(self, phase: int) -> bool:
        outermost = phase not in self._open
        self._open.append(phase)
        if phase == hooks.BACKWARD and outermost:
            self._backward_stack = self._stacks.at(sys._getframe(2))
        self._update_modes()
        return outermost

    @harmless
    def phase_left(self, phase: int) -> None:
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at] == phase:
                del self._open[at:]
                break
        self._update_modes()

    def _update_modes(self) -> None:
        innermost = self._open[-1] if self._open else -1
        self.mode.ignores_values = innermost in (hooks.BACKWARD, hooks.OPTIMIZER)
        self.guesses.quiet = innermost == hooks.OPTIMIZER

    @harmless
    def loaded(self, loader: object, batch: object) -> None:
        self._current.batch.loaded(loader, batch)
        self._current.memory.loaded(batch)

    def ran_out(self, loader: object) -> None:
        """Does nothing, because an estimate times no loader."""

    @harmless
    def went_backward(self, extends_graph: bool) -> None:
        if not self._signals.on_our_thread():
            return
        self._current.memory.went_backward()
        frame = sys._getframe(2)
        within_step = hooks.OPTIMIZER in self._open
        self._decide(self._tracker.went_backward(frame, within_step, extends_graph), frame)

    @harmless
    def optimizer_created(self, optimizer: torch.optim.Optimizer) -> None:
        self._tracker.optimizer_created(optimizer)

    @harmless
    def stepped(self, optimizer: object) -> None:
        if not self._signals.on_our_thread():
            return
        if hooks.OPTIMIZER in self._open:
            self._finder.stepped_within(id(optimizer))
            return
        if hooks.BACKWARD in self._open:
            self._tracker.stepped_in_backward(optimizer)
            return
        frame = sys._getframe(2)
        self._decide(self._tracker.stepped(optimizer, frame), frame)

    @harmless
    def module_entered(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        index = self._current.table.index_of_called(module)
        if not self._modules:
            inputs = (args, kwargs)
            self._current.batch.given((id(module), self._signals.place(sys._getframe(2))), inputs)
            if not self._current.batch.has_loader:
                self._current.memory.given(inputs)
        self._modules.append(-1 if index is None else index)
        innermost = self._open[-1] if self._open else -1
        # A transform in the loader may be a module, and checkpointing calls modules in the backward
        # pass.
        is_outside_forward = innermost in (hooks.BACKWARD, hooks.DATA)
        self._open.append(innermost if is_outside_forward else hooks.FORWARD)
        self._update_modes()

    @harmless
    def module_left(self, module: nn.Module) -> None:
        if self._modules:
            self._modules.pop()
        if self._open:
            self._open.pop()
        self._update_modes()
        is_signal = not self._modules and self._tracker.is_found_by_modules
        is_signal = is_signal and hooks.BACKWARD not in self._open
        if is_signal and self._signals.on_our_thread():
            frame = sys._getframe(2)
            self._decide(self._tracker.called(module, frame), frame)

    # The iterations.

    def _decide(self, verdict: Verdict, frame: types.FrameType) -> None:
        if verdict is Verdict.NOTHING or self._saving:
            return
        if verdict is Verdict.RESTART:
            may_restart = self._tracker.may_restart()
            if may_restart or self._result_without_steps is not None:
                # The previous iterations were wrong. The next one is an iteration.
                self._tracker.boundaries = 0
                self._previous = self._result_without_steps = None
                self._start_listening()
                self._begin(frame)
                return
        if self._result_without_steps is not None:
            return
        self._tracker.boundaries += 1
        self._sources.read_texts_of_files(self._tracker.began_ns)
        self._tracker.host.progress(STAGE, self._tracker.boundaries, 2)
        self._loop = self._found_loop(frame) or self._loop
        if self._tracker.boundaries == 2 and self._finder.may_be_better:
            # Reinforcement learning plays hundreds of steps before a training step. A recording is
            # made first and then waits (record/extra/signal_grace_period.py); an estimate can only
            # wait.
            self._stop_listening()
            self._result_without_steps = self._current
            self._current = self._new_iteration(self._current.batch.next_iteration())
            return
        if self._tracker.boundaries == 2:
            self._save("complete", None, frame)
            self._tracker.host.finish("complete")
        # Described only at the end, because reading a frame's variables may keep their values
        # alive.
        self._previous = self._current
        self._begin(frame)

    def _new_iteration(self, batch: BatchWatch) -> Iteration:
        return Iteration(
            OperatorColumns(),
            ModuleTable(self._tracker.constructions),
            batch,
            MemoryWatch(self._device),
            MemoryEvents(self._is_counted, self._device.type == "cuda"),
        )

    def _begin(self, frame: types.FrameType) -> None:
        """Begins an iteration."""
        current = self._current = self._new_iteration(self._current.batch.next_iteration())
        optimizers = self._signals.optimizers()
        current.table.build(optimizers)
        current.memory.begin(current.table, optimizers, self._tracker.inputs)
        current.events.begin(current.memory, self.arena.alive)
        self._stack_before = loops.stack_frames(frame, self._sources)

    def _is_counted(self, address: int) -> bool:
        return self._device.type == "cpu" or address >= self.arena.middle

    def _found_loop(self, frame: types.FrameType) -> tuple[int, int] | None:
        after = loops.stack_frames(frame, self._sources)
        lines = self._stacks.lines(self._current.columns.stacks())
        return loops.find_loop(self._stack_before, after, lines, self._sources)

    # The operator list.

    def _save(
        self,
        outcome: str,
        failure: dict[str, object] | None,
        frame: types.FrameType | None = None,
    ) -> None:
        self._saving = True
        self._stop_listening()
        if self._unsupported and outcome == "complete":
            outcome = "partial"
        listed = self._current.json(self._sources, self._signals.optimizers(), frame)
        self._write({**listed, "outcome": outcome, "failure": failure})

    def _write(self, listed: dict[str, Any]) -> None:
        for function in self._tracker.iterations:
            self._loop = loops.definition(function, self._sources) or self._loop
        content = {
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
        # Last, because everything above may have added a file.
        content["files"] = self._sources.paths()
        operator_list.write(os.path.abspath(self._spec.out), content)
