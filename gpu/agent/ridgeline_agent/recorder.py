"""The recorder: measures a program's iterations and writes the recording (docs/recording.md).

A run has three stages. In the *warm-up*, iterations are found and the program settles. In the
*timing*, iterations run as they are, with hooks that cost a microsecond: theirs is the time that is
reported. In the *profiling*, the line clock and Kineto are on: theirs are the shares by which the
reported time is split. After that the recording is written and the process ends.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import gc
import os
import platform
import sys
import time
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from . import (
    __version__,
    allocator,
    device,
    device_activity,
    hooks,
    line_clock,
    loops,
    manifest,
)
from .alignment import Alignment
from .batch import BatchWatch
from .capture_traces import CaptureTraces, start_kineto
from .compiled import CompiledRegions
from .cuda_graphs import MENTIONS_CAPTURE, Capture, CudaGraphs
from .failure import describe_failure
from .further import Further, is_quick
from .host import Host
from .iterations import MODULE, IterationFinder, Verdict
from .loader_batches import LoaderBatches
from .loaders import LoaderTimes
from .memory import MemoryWatch
from .modules import Definitions, ModuleTable, optimizers_json
from .more_times import PROFILED_FOR_TIMES
from .observed import Observed
from .open_phases import OpenPhases
from .out_of_memory import OutOfMemoryWatch
from .overlay import Overlay
from .phase_times import PhaseTimes
from .rank_states import processes_of_run
from .settings import Within, machine_json, settings_json
from .signals import Signals
from .sources import Sources, UserCode
from .sparsity import SPARSE_TYPES, Sparsity
from .spec import RunSpec
from .timing import Timer

_MOST_NOTES = 50
# How often the timing begins anew because something was compiled, or what had been taken for
# iterations was none. After that it is taken as it is, with a note.
_MOST_RESTARTS = 10
# Iterations before a capture are its warm-up: three of torch's documentation, eleven with DDP. In a
# program whose text mentions a capture so many are waited for, and no longer than this; more on a
# stream of their own, as the documentation has it.
_MOST_BEFORE_CAPTURE = 16
_MOST_BEFORE_CAPTURE_NS = 10_000_000_000
_MOST_ON_SIDE_STREAM = 64

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Stage(enum.Enum):
    """How far the run is; the values are the names in the protocol."""

    WARM_UP = "warm-up"
    TIMING = "timing"
    PROFILING = "profiling"
    SAVING = "saving"


def _harmless(method: _Method) -> _Method:
    """A hook whose own errors never reach the user's program: they become notes. What it takes is
    logged while the profiler runs, because it is no time of the program's.
    """

    @functools.wraps(method)
    def guarded(self: Any, *args: Any) -> Any:
        if self._inert or os.getpid() != self._pid:
            return None
        began_ns = 0 if self._profiler is None else time.time_ns()
        try:
            return method(self, *args)
        except Exception as error:
            self.note(method.__name__.strip("_").replace("_", " "), error)
            return None
        finally:
            if began_ns:
                self._log.recorder_ran(began_ns)

    return guarded  # type: ignore[return-value]


class Recorder:
    """Measures the program of this process. One for each process."""

    def __init__(self, spec: RunSpec, host: Host, overlay: Overlay) -> None:
        self._spec = spec
        self._host = host
        self._pid = os.getpid()
        self._inert = False
        self._began_ns = time.time_ns()
        self._notes: list[str] = []
        user_code = UserCode(spec.root, spec.user_code, spec.not_user_code, spec.user_packages)
        self._sources = Sources(user_code, overlay)
        self._signals = Signals(self._sources)
        self._log = line_clock.EventLog(spec.limits.line_events)
        self._clock = line_clock.line_clock(self._log, self._sources)
        self._finder = IterationFinder(spec.iterations.found_by)
        self._definitions = Definitions(self.note)
        self._table = ModuleTable(self._definitions)
        self._compiled = CompiledRegions(self._sources)
        self._graphs = CudaGraphs()
        self._captures = CaptureTraces(spec.out)
        self._calls = hooks.ModuleCalls(self, SPARSE_TYPES, self._module_gave)
        self._batch = BatchWatch()
        self._loader_batches = LoaderBatches()
        self._loader_times = LoaderTimes(self._sources)
        self._observed = Observed(self._sources, self._tolerating)
        self._sparsity = Sparsity()
        self._within = Within()
        self._out_of_memory = OutOfMemoryWatch(self._sources)
        self._provided: object = ()
        self._iterations: tuple[Callable[..., Any], ...] = ()
        self._open = OpenPhases()
        self._alignment = Alignment(spec.rank is not None)

        self._stage = Stage.WARM_UP
        # Without warm-up, the first iteration begins with the first thing that a loop does.
        self._before_first = spec.iterations.warmup == 0
        self._boundaries = 0
        self._warmed_up = 0
        self._restarts = 0
        self._compilations_before = 0
        self._ranks_compile = False
        self._first_boundary_ns = 0
        self._device = torch.device("cpu")
        self._timer = Timer(self._device)
        self._phase_times = PhaseTimes()
        self._memory: MemoryWatch | None = None
        self._others_go_backward = False
        self._measured: tuple[MemoryWatch, BatchWatch] | None = None
        # How many iterations are profiled for their times alone, behind those with memory.
        self._for_times = 0
        self._profiler: Any = None
        self._results: Any = None
        self._profiled: list[tuple[int, int]] = []
        # What the allocator of the GPU had given out when the profiler started.
        self._allocations: int | None = None
        # Why the profiler recorded nothing of a GPU that ran operators.
        self._kernels_missing: str | None = None
        self._further: Further | None = None
        self._iteration_began_ns = 0
        self._stack_before: loops.Frames = []
        self._first_record = 0
        # Where the line log of captures ends.
        self._captured_records = 0
        self._found_loops: collections.Counter[tuple[int, int]] = collections.Counter()

    # What the host calls.

    def install(self) -> None:
        """Installs every hook. Call it before any of the user's code runs."""
        # So that a search for tensors need not look at what the imports have made, and copies none
        # of the pages that are shared with a zygote.
        gc.freeze()
        self._definitions.install()
        hooks.install(self)
        self._loader_times.install()
        self._tolerating("the program's own profilers", self._observed.profilers.install)
        self._tolerating("the watch for out of memory", self._out_of_memory.install)
        self._compiled.install(self._spec.eager, lambda: self._calls.function)
        self._graphs.install(self)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        self._calls.start()
        self._host.progress(Stage.WARM_UP.value, 0, self._spec.iterations.warmup)

    def provided(
        self, batch_size: int, inputs: object, iterations: tuple[Callable[..., Any], ...]
    ) -> None:
        """A provider made its inputs, for this batch size, and what runs an iteration.

        The first of `iterations` that is user code has the line that stands for the loop.
        """
        self._batch.provided(batch_size)
        self._provided = inputs
        self._iterations = iterations

    @_harmless
    def iteration_ended(self) -> None:
        """A provider's iteration has ended: the boundary that needs no finding."""
        self._decide(self._finder.ended(), sys._getframe(2))

    def ended(self) -> str:
        """The program ended early. Writes what there is; returns the outcome."""
        if self._stage is Stage.SAVING:
            return "complete"
        try:
            complete = self._stage is Stage.PROFILING and bool(self._profiled)
            self._save("complete" if complete else "short", sys._getframe(1), None)
        except OSError as error:
            self._host.finish("exited", unwritten(error))
        return "complete" if complete else "short"

    def failed(self, error: BaseException) -> None:
        """The program raised. Writes a manifest that says what, and where."""
        if self._further is not None:
            # All that was asked for had been recorded.
            self._complete(None)
        failure = describe_failure(error, self._spec.root, self._sources.file)
        failure["memory"] = self._tolerating("what held the memory", self._held_by, error)
        self._save("failed", None, failure)

    def _held_by(self, error: BaseException) -> dict[str, Any] | None:
        table, optimizers = ModuleTable(self._definitions), self._signals.optimizers()
        table.build(optimizers)
        return self._out_of_memory.json(error, table, optimizers, self._others_go_backward)

    def note(self, what: str, error: BaseException) -> None:
        """Notes an error of our own for the person who reads the recording."""
        text = f"{type(error).__name__}: {error}"
        self._add_note(f"an error within the profiler, not in your program ({what}): {text}")

    def _add_note(self, text: str) -> None:
        if text not in self._notes and len(self._notes) < _MOST_NOTES:
            self._notes.append(text)

    # What the hooks call (hooks.Listener).

    @_harmless
    def phase_entered(self, phase: int) -> bool:
        if self._before_first:
            self._begin_without_warm_up()
        outermost = self._open.enter(phase)
        times = self._open_phase_times()
        if times is not None and self._signals.on_our_thread():
            times.entered(phase)
        if self._is_logging():
            self._log.add(line_clock.PHASE_ENTER, phase)
        if phase == hooks.DATA and self._signals.may_be_our_thread():
            self._loader_times.begins()
        return outermost

    @_harmless
    def phase_left(self, phase: int) -> None:
        if phase == hooks.DATA and self._signals.may_be_our_thread():
            self._loader_times.ends()
        self._open.leave(phase)
        times = self._open_phase_times()
        if times is not None and self._signals.on_our_thread():
            times.left(phase)
        if self._is_logging():
            self._log.add(line_clock.PHASE_EXIT, phase)

    @_harmless
    def loaded(self, loader: object, batch: object) -> None:
        self._loader_batches.loaded(loader, batch, measured=self._profiler is not None)
        if self._stage is Stage.WARM_UP:
            self._out_of_memory.loaded(loader, batch)
        if self._signals.may_be_our_thread():
            self._loader_times.loaded(loader, self._is_timing(), batch)
            if getattr(loader, "_num_yielded", None) == 1:
                self._passed()
        if self._profiler is not None and self._signals.on_our_thread():
            self._batch.loaded(loader, batch)
            if self._memory is not None:
                self._memory.loaded(batch)

    @_harmless
    def ran_out(self, loader: object) -> None:
        if self._signals.may_be_our_thread():
            self._loader_times.ran_out(loader)
            self._passed()

    def _passed(self) -> None:
        """A pass through a loader began or ended: what validates may follow."""
        if self._is_measuring() and self._observed.look_once():
            self._calls.of_all = True
            self._calls.start()

    @_harmless
    def went_backward(self) -> None:
        if not self._signals.on_our_thread():
            self._others_go_backward = True
            if self._memory is not None:
                self._memory.others_go_backward = True
            return
        capture = self._graphs.open
        if capture is not None:
            capture.went_backward()
            return
        if self._profiler is not None:
            self._within.look(self._device)
        if self._profiler is not None and self._memory is not None:
            self._memory.went_backward()
        self._observed.went_backward()
        frame = sys._getframe(2)
        self._decide(self._finder.went_backward(self._signals.place(frame)), frame)

    @_harmless
    def optimizer_made(self, optimizer: torch.optim.Optimizer) -> None:
        self._finder.optimizer_made()
        self._signals.optimizer_made(optimizer)

    @_harmless
    def stepped(self, optimizer: object) -> None:
        if not self._signals.on_our_thread():
            return
        capture = self._graphs.open
        if capture is not None:
            capture.stepped(optimizer)
            return
        self._observed.stepped(optimizer)
        if self._open.has(hooks.OPTIMIZER):
            self._finder.stepped_within(id(optimizer))
            return
        frame = sys._getframe(2)
        alive = self._signals.optimizer_ids()
        self._decide(self._finder.stepped(id(optimizer), self._signals.place(frame), alive), frame)

    @_harmless
    def module_entered(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        outermost = self._open.call()
        if self._before_first:
            self._begin_without_warm_up()
        if self._is_logging():
            log = self._log
            if outermost and self._open.innermost() != hooks.BACKWARD:
                log.add(line_clock.PHASE_ENTER, hooks.FORWARD)
                if self._signals.on_our_thread():
                    inputs = (args, kwargs)
                    place = self._signals.place(sys._getframe(2))
                    capture = self._graphs.open
                    batch = self._batch if capture is None else capture.batch
                    batch.given((id(module), place), inputs)
                    # What a loader gave is copied to a GPU, and the copy is what a model is given.
                    is_copied = self._device.type == "cuda"
                    if self._memory is not None and (is_copied or not self._batch.has_loader):
                        self._memory.given(inputs)
            index = self._table.index_of_called(module)
            if index is not None:
                log.add(line_clock.MODULE_ENTER, index)
            self._within.look(self._device)
        elif outermost and self._stage is Stage.WARM_UP:
            self._out_of_memory.given((args, kwargs))
        if self._observed.is_looking and self._is_looked_at():
            self._observed.entered(module, args, kwargs, outermost, sys._getframe(2))

    @_harmless
    def _module_gave(self, module: nn.Module, output: Any) -> None:
        if self._observed.is_looking and self._is_looked_at():
            self._observed.gave(module, output)
        if self._boundaries > 0 or self._stage is not Stage.WARM_UP or self._before_first:
            return
        if type(module) in SPARSE_TYPES and self._graphs.open is None:
            # Once, in the first of the iterations that are thrown away.
            self._sparsity.gave(module, output)

    @_harmless
    def capture_begins(self, capture: Capture) -> None:
        if self._stage is Stage.SAVING:
            return
        if capture.is_compilers:
            # As what it compiles, it belongs to the first iterations.
            self._compiled.compilations += 1
            return
        # What ran before was the warm-up of the capture, and no training.
        self._restarts += 1
        if self._restarts < _MOST_RESTARTS:
            self._finder.begin_anew()
            self._boundaries = self._warmed_up = 0
            self._restart()
            self._observed.begin(anew=True)
        if self._profiler is None and self._signals.may_be_our_thread():
            self._tolerating("a trace of the capture", self._trace_capture, capture)

    @_harmless
    def capture_ended(self, capture: Capture) -> None:
        if self._captures.is_on:
            self._clock.stop()
            self._captures.end()
            self._captured_records = self._log.position()

    def _trace_capture(self, capture: Capture) -> None:
        self._device = device.used_device(self._spec.device)
        # One table for all that is logged, because the log names modules by their index in it.
        self._table.build(self._signals.optimizers())
        if self._captures.begin(capture.number):
            self._calls.start()
            self._clock.start()

    @_harmless
    def replay_begins(self, capture: Capture | None) -> object:
        if self._profiler is None or self._device.type != "cuda":
            return None
        if capture is not None:
            self._batch.replayed(capture.batch)
        # The profiler knows the thread of a launch by the operators that run on it.
        operator: Any = torch._C._profiler._RecordFunctionFast("CUDAGraph.replay")
        operator.__enter__()
        return operator, time.time_ns()

    @_harmless
    def replayed(self, capture: Capture | None, begun: Any) -> None:
        if begun is not None:
            operator, began_ns = begun
            operator.__exit__(None, None, None)
            if capture is None:
                self._captures.replayed(began_ns, None)
            elif not capture.is_compilers:
                # Those divide over their lines as what is compiled without graphs does.
                self._captures.replayed(began_ns, capture.number)
        is_part = self._open.is_in_call() or self._open.has(hooks.BACKWARD)
        if is_part or self._open.has(hooks.OPTIMIZER) or not self._signals.on_our_thread():
            return
        # The signals that the captured code would have given.
        capture = Capture(-1, False) if capture is None else capture
        frame = sys._getframe(2)
        symbol = (capture.number, self._signals.place(frame))
        alive = self._signals.optimizer_ids()
        verdict = self._finder.replayed(capture.holds, symbol, capture.optimizers, alive)
        self._decide(verdict, frame)

    def _is_logging(self) -> bool:
        """Whether the line clock runs, in a profiled iteration or a capture."""
        return self._profiler is not None or self._captures.is_on

    def _is_measuring(self) -> bool:
        """Whether an iteration is timed or profiled."""
        return self._stage in (Stage.TIMING, Stage.PROFILING) and self._further is None

    def _open_phase_times(self) -> PhaseTimes | None:
        """Those of the iteration that runs, where it is timed."""
        if self._further is None:
            return self._phase_times if self._stage is Stage.TIMING else None
        more = self._further.more_times
        return None if more is None else more.phase_times

    def _is_timing(self) -> bool:
        """Whether the iteration that runs is timed."""
        return self._open_phase_times() is not None

    def _is_looked_at(self) -> bool:
        """Whether a call belongs to the forward passes of the thread that trains."""
        # What is looked at is computed with, which no capture should have in it.
        is_captured = self._graphs.open is not None
        return (
            self._signals.may_be_our_thread()
            and not self._open.has(hooks.BACKWARD)
            and not is_captured
        )

    @_harmless
    def module_left(self, module: nn.Module) -> None:
        outermost = self._open.called()
        if outermost and self._observed.is_looking and self._is_looked_at():
            self._observed.left()
        if self._is_logging():
            index = self._table.index_of_called(module)
            if index is not None:
                self._log.add(line_clock.MODULE_EXIT, index)
            if outermost and self._open.innermost() != hooks.BACKWARD:
                self._log.add(line_clock.PHASE_EXIT, hooks.FORWARD)
        is_signal = self._finder.found_by in (None, MODULE) and self._graphs.open is None
        if outermost and is_signal and self._signals.on_our_thread():
            frame = sys._getframe(2)
            training = module.training and torch.is_grad_enabled()
            verdict = self._finder.called(id(module), self._signals.place(frame), training)
            self._decide(verdict, frame)

    # The stages.

    def _decide(self, verdict: Verdict, frame: types.FrameType) -> None:
        now_ns = time.perf_counter_ns()
        try:
            self._advance(verdict, frame, now_ns)
        except Exception as error:
            # Nothing can be measured any more, and the program may run for ever.
            self._host.finish("exited", f"the recorder failed: {type(error).__name__}: {error}")

    def _advance(self, verdict: Verdict, frame: types.FrameType, now_ns: int) -> None:
        if verdict is Verdict.NOTHING or self._stage is Stage.SAVING:
            return
        if self._graphs.is_capturing():
            # Nothing can be measured now, and what is captured is no iteration.
            return
        if verdict is Verdict.RESTART:
            # This signal need not be the end of an iteration; the next boundary is.
            self._warmed_up = max(0, min(self._warmed_up, self._spec.iterations.warmup) - 1)
            self._restart()
            self._observed.begin(anew=True)
            return
        self._boundaries += 1
        if self._is_measuring() and self._observed.look_away():
            self._look_away()
        if self._stage is Stage.WARM_UP:
            self._calls.of_all = True
            self._observed.begin()
        if self._boundaries == 1:
            self._sources.read_texts(self._began_ns)
        if self._was_compiled() and self._may_restart():
            self._restart()
        elif self._stage is Stage.WARM_UP:
            self._warmed_up_one()
        elif self._stage is Stage.TIMING:
            self._timed_one(now_ns)
        elif self._stage is Stage.PROFILING:
            self._profiled_one(frame, now_ns)

    def _look_away(self) -> None:
        """Modules are told of again as the stage wants it."""
        self._calls.of_all = False
        if self._profiler is None and self._finder.found_by != MODULE:
            self._calls.stop(keep=self._compiled.is_used)

    def _was_compiled(self) -> bool:
        """Whether something was compiled in the iteration that has ended, in any of the ranks."""
        compiled = self._compiled.compilations - self._compilations_before
        self._compilations_before += compiled
        if self._boundaries == 1:
            # Where one of the ranks compiles, all of them have to ask after each iteration.
            self._ranks_compile = self._all_ranks("compilers", int(self._compiled.is_used)) > 0
        asks = self._ranks_compile or self._compiled.is_used
        if asks and self._stage is not Stage.PROFILING:
            return self._all_ranks("compiled", compiled) > 0
        return compiled > 0

    def _may_restart(self) -> bool:
        """Whether to begin anew after an iteration in which something was compiled."""
        if self._stage is Stage.PROFILING:
            return False
        if self._spec.iterations.warmup == 0:
            # The program has too few iterations to leave one out.
            self._add_note(
                "torch.compile compiled in an iteration that was measured, for there was no warm-up"
            )
            return False
        self._restarts += 1
        if self._restarts == _MOST_RESTARTS:
            self._add_note(
                "torch.compile compiles again and again, so the measured time includes compilation"
            )
        return self._restarts < _MOST_RESTARTS

    def _restart(self) -> None:
        """Back to the warm-up: what was measured was no iteration as the others are."""
        if self._stage is Stage.PROFILING:
            self._stop_profiler()
            self._stop_going_further()
            self._log.keep(self._captured_records)
            self._captures.forget_replays()
            self._profiled.clear()
            self._measured = None
            self._results = None
        self._timer = Timer(self._device)
        self._loader_times.forget_times()
        self._stage = Stage.WARM_UP
        self._out_of_memory.start_history()
        self._calls.of_all = True
        self._calls.start()

    def _warmed_up_one(self) -> None:
        wanted = self._spec.iterations.warmup
        self._warmed_up += 1
        self._host.progress(self._stage.value, min(self._warmed_up, wanted), wanted)
        if self._warmed_up >= wanted and not self._awaits_capture():
            self._begin_timing()

    def _awaits_capture(self) -> bool:
        """Whether the iterations so far may be the warm-up of a capture that is still to come."""
        if self._boundaries == 1:
            self._first_boundary_ns = time.perf_counter_ns()
        if not torch.cuda.is_initialized() or not self._sources.mention(MENTIONS_CAPTURE):
            return False
        if torch.cuda.current_stream() != torch.cuda.default_stream():
            return self._boundaries < _MOST_ON_SIDE_STREAM
        took_ns = time.perf_counter_ns() - self._first_boundary_ns
        is_early = self._boundaries < _MOST_BEFORE_CAPTURE and took_ns < _MOST_BEFORE_CAPTURE_NS
        return self._graphs.count == 0 and is_early

    def _begin_without_warm_up(self) -> None:
        self._before_first = False
        self._add_note(
            "the program's first iteration was measured too, which is often slower than later ones"
        )
        self._begin_timing()

    def _begin_timing(self) -> None:
        self._device = device.used_device(self._spec.device)
        self._look_away()
        self._tolerating("the zeros in activations", self._sparsity.settle)
        self._observed.timing_begins(self._device)
        self._out_of_memory.stop_history()
        self._timer = Timer(self._device)
        self._phase_times = PhaseTimes()
        self._stage = Stage.TIMING
        self._host.progress(self._stage.value, 0, self._spec.iterations.timed)
        self._all_ranks("timing", 0)
        self._host.timed(0)
        self._timer.begin()

    def _timed_one(self, now_ns: int) -> None:
        self._timer.end(now_ns)
        self._phase_times.iteration_ended()
        self._host.timed(self._timer.count)
        self._observed.look_at_gpu(now_ns)
        asked = self._spec.iterations
        most = asked.timed_at_most
        if self._timer.count < asked.timed or (most is not None and self._goes_on(most)):
            self._timer.begin()
            return
        self._timer.finish()
        self._observed.timing_ended(self._processes_of_ranks())
        self._stage = Stage.PROFILING
        self._host.progress(self._stage.value, 0, self._spec.iterations.profiled)
        self._for_times = PROFILED_FOR_TIMES if is_quick(self._spec, self._timer) else 0
        self._start_profiler()
        self._begin_profiled_one(sys._getframe())

    def _goes_on(self, most: int) -> bool:
        """Whether another iteration is timed. Where one rank has a reason to, all of them go on."""
        return self._all_ranks("more", int(self._timer.goes_on(most))) > 0

    def _start_profiler(self) -> None:
        if self._captured_records == 0:
            self._table = ModuleTable(self._definitions)
        self._tolerating("the search for modules", self._table.build, self._signals.optimizers())
        if self._device.type == "cuda":
            device.synchronize()
        self._allocations = device_activity.allocations(self._device)
        self._profiler = start_kineto(on_cuda=self._device.type == "cuda", memory=True)
        self._calls.start()
        self._clock.start()

    def _stop_profiler(self) -> Any:
        """Stops everything that costs time; returns Kineto's results."""
        self._clock.stop()
        if self._finder.found_by != MODULE:
            self._calls.stop(keep=self._compiled.is_used)
        if self._profiler is None:
            return self._results
        self._profiler = None
        # Kept until the process ends, because taking them apart takes longer than saving them.
        self._results = torch._C._autograd._disable_profiler()
        return self._results

    def _begin_profiled_one(self, frame: types.FrameType) -> None:
        self._batch = self._batch.next_iteration()
        self._memory = MemoryWatch(self._device)
        self._memory.others_go_backward = self._others_go_backward
        optimizers = self._signals.optimizers()
        self._tolerating(
            "the baseline", self._memory.begin, self._table, optimizers, self._provided
        )
        self._stack_before = loops.stack_frames(frame, self._sources)
        self._all_ranks("profiling", 0)
        self._open_window()

    def _begin_one_for_times(self) -> None:
        """What else is looked at in an iteration leaves cold caches to a quick one."""
        self._batch = self._batch.next_iteration()
        self._memory = None
        self._open_window()

    def _open_window(self) -> None:
        self._first_record = self._log.position()
        self._log.add(line_clock.ITERATION, len(self._profiled))
        self._iteration_began_ns = time.time_ns()

    def _profiled_one(self, frame: types.FrameType, now_ns: int) -> None:
        if self._further is not None:
            if not self._further.iteration_ended(now_ns):
                self._complete(frame)
            return
        ended_ns = time.time_ns()
        if self._device.type == "cuda":
            # So that an iteration's kernels lie within its own window.
            device.synchronize()
        self._profiled.append((self._iteration_began_ns, time.time_ns()))
        # The program did not wait there. Behind the last iteration nothing else says so.
        self._log.recorder_ran(ended_ns)
        done, wanted = len(self._profiled), self._spec.iterations.profiled
        last = done >= wanted + self._for_times
        if last:
            self._log.add(line_clock.ITERATION, done)
        if self._memory is not None:
            self._memory.end()
            if self._memory.is_unknown():
                self._add_note(f"memory is unknown: {allocator.why_unknown()}")
            if others := device.others_in_use(self._device):
                self._add_note(
                    f"memory is that of {self._device}, which holds most; the program also uses "
                    f"{', '.join(others)}"
                )
            self._measured = (self._memory, self._batch)
            self._tolerating("the search for the loop", self._find_loop, frame)
            self._host.progress(self._stage.value, min(done, wanted), wanted)
        if done < wanted:
            self._begin_profiled_one(frame)
        elif not last:
            self._begin_one_for_times()
        else:
            self._stop_profiler()
            self._go_further(frame)

    def _go_further(self, frame: types.FrameType) -> None:
        """Goes on for some iterations where these tell more; without any, it is complete."""
        self._further = Further(
            self._spec,
            self._began_ns,
            self._sources,
            self._observed,
            self._finder,
            self._timer,
            self._phase_times,
            self._all_ranks,
            self._tolerating,
        )
        if not self._further.goes_on():
            self._complete(frame)

    def _phases_json(self) -> dict[str, list[int]]:
        # On a GPU the host runs ahead of what it starts.
        on_cpu = self._device.type == "cpu"
        return self._phase_times.json(self._timer.count) if on_cpu else {}

    def _find_loop(self, frame: types.FrameType) -> None:
        loop = loops.find_loop(
            self._stack_before,
            loops.stack_frames(frame, self._sources),
            loops.lines_in(self._log, self._first_record, self._log.position()),
            self._sources,
        )
        if loop is not None:
            self._found_loops[loop] += 1

    def _stop_going_further(self) -> None:
        further, self._further = self._further, None
        if further is not None:
            further.stop()
            self._timer, self._phase_times = further.timer, further.phase_times

    def _complete(self, frame: types.FrameType | None) -> None:
        """Writes the recording and ends the process, from within the program's own call."""
        try:
            self._save("complete", frame, None)
        except Exception as error:
            self._host.finish("exited", unwritten(error))
        self._host.finish("complete")

    # Helpers.

    def _all_ranks(self, what: str, number: int) -> int:
        """The sum of what every rank gives, which all wait for; 0 where the others do not come."""
        total = self._alignment.total
        return self._tolerating("the wait for the other ranks", total, what, number) or 0

    def _processes_of_ranks(self) -> frozenset[int]:
        """The processes that the launcher started with this one; none without a launcher."""
        rank = self._spec.rank
        return frozenset() if rank is None else processes_of_run(self._spec.out, rank)

    def _tolerating(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Calls what the recording can do without: its errors become notes."""
        try:
            return function(*args)
        except Exception as error:
            self.note(what, error)
            return None

    def _forked(self) -> None:
        """In a child of the user's program, a loader's worker for one, nothing is measured."""
        self._inert = True
        with contextlib.suppress(Exception):
            self._clock.stop()
            if self._observed.line_times is not None:
                self._observed.line_times.stop()

    def _save(
        self, status: str, frame: types.FrameType | None, failure: dict[str, object] | None
    ) -> None:
        if self._device.type == "cpu" and self._profiled and self._measured_at() == 0:
            # torch reports no frees of CPU memory that it had not seen being taken.
            self._add_note(
                "only one iteration was profiled: memory that was taken before it and freed within "
                "it counts as held, so the true peak may be lower"
            )
        self._stage = Stage.SAVING
        self._host.progress(self._stage.value, 0, 1)
        results = self._stop_profiler()
        self._stop_going_further()
        folder = os.path.abspath(self._spec.out)
        if status == "complete":
            self._log.save(os.path.join(folder, "lines.bin"))
            self._loader_batches.save(folder)
            manifest.save_trace(results, folder)
            self._tolerating("the search for kernels", self._look_for_kernels)
            what = "the traces of captures"
            self._tolerating(what, self._captures.add_to_trace, manifest.TRACE)
        manifest.write_manifest(folder, self._manifest(status, frame, failure))
        self._host.progress(self._stage.value, 1, 1)

    def _look_for_kernels(self) -> None:
        """A profile of a GPU without a kernel is wrong where the GPU had something to do."""
        if self._device.type != "cuda" or device_activity.has_activity(manifest.TRACE):
            return
        before, now = self._allocations, device_activity.allocations(self._device)
        gave_memory = before is not None and now is not None and now > before
        if gave_memory or self._captures.replays:
            self._kernels_missing = device_activity.why_missing()

    def _manifest(
        self, status: str, frame: types.FrameType | None, failure: dict[str, object] | None
    ) -> dict[str, object]:
        complete = status == "complete"
        facts = device.device_json(self._device)
        # Modules first: their definitions may name files that no line of the log does.
        optimizers = self._signals.optimizers()
        modules: Any = []
        if complete:
            what = "the table of modules"
            modules = self._tolerating(what, self._table.json, self._sources, optimizers, frame)
        owned = self._tolerating("the optimizers", optimizers_json, optimizers, self._table)
        sparsity = self._tolerating("the zeros in activations", self._sparsity.json, self._table)
        settings = self._tolerating("the settings", settings_json, self._device, self._within)
        compiled = self._compiled.json()
        observed = self._observed.json(self._table, self._compiled) if complete else {}
        memory, batch = self._measured or (MemoryWatch(self._device), self._batch)
        self._tolerating("the names of weights", memory.name_weights, frame)
        self._sources.read_texts(self._began_ns)
        loop = self._loop()
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
            "files": self._sources.files_json(),
            "codes": self._sources.codes_json(),
            "threads": self._log.threads_json(),
            "iterations": {
                "found_by": self._finder.found_by,
                "steps_per_iteration": self._finder.signals_per_iteration,
                "warmup": self._warmed_up,
                "seen": self._boundaries,
                "signals": dict(self._finder.seen),
                "timed_ns": self._timer.wall_ns() if complete else [],
                "timed_device_ns": self._timer.device_ns() if complete else [],
                "timed_phases": self._phases_json() if complete else {},
                "joules": self._timer.joules() if complete else None,
                "profiled": [list(window) for window in self._profiled],
                "measured": self._measured_at() if complete else None,
            },
            "loop": None if loop is None else {"file": loop[0], "line": loop[1]},
            "batch": batch.json(),
            "modules": modules or [],
            "optimizers": owned or [],
            "loaders": self._loader_times.json(),
            "sparsity": sparsity or [],
            "memory": memory.json(facts["capacity_bytes"]),
            "observed": observed,
            "kernels_missing": self._kernels_missing,
            "cuda_graphs": self._captures.json() if complete else None,
            "compiled": compiled,
            "shares_from": "eager" if self._spec.eager else None,
            "line_log": self._log.json(),
            "failure": failure,
            "notes": self._notes,
        }

    def _measured_at(self) -> int:
        """Which of the profiled iterations was the last whose memory was watched."""
        return min(len(self._profiled), self._spec.iterations.profiled) - 1

    def _loop(self) -> tuple[int, int] | None:
        """`(file, line)` of the loop, or of the function that a provider's iteration is."""
        for function in self._iterations:
            what = "the search for the iteration"
            found: tuple[int, int] | None
            found = self._tolerating(what, loops.definition, function, self._sources)
            if found is not None:
                return found
        return max(self._found_loops, key=lambda at: (self._found_loops[at], at), default=None)

    def _entry(self) -> dict[str, object]:
        entry = self._spec.entry
        if entry.kind == "module":
            return {"kind": entry.kind, "name": entry.target}
        path = self._sources.user_code.path(entry.target)
        return {"kind": entry.kind, "path": path or os.path.basename(entry.target)}


def unwritten(error: Exception) -> str:
    """The message for a recording that could not be written."""
    return f"the recording could not be written: {type(error).__name__}: {error}"
