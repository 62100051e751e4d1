"""The stages of a measured run: warm-up, timing, profiling, and saving what was recorded."""

from __future__ import annotations

import enum
import sys
import time
import types
from collections.abc import Callable

import torch

from ..iterations.finder import Verdict
from ..iterations.tracker import MOST_RESTARTS, IterationTracker
from ..protocol.spec import RunSpec
from . import device
from .capture_traces import CaptureTraces
from .extra.extra_iterations import ExtraIterations, is_quick
from .extra.more_times import PROFILED_FOR_TIMES
from .patches.child_processes import ChildProcesses
from .patches.cuda_graphs import MENTIONS_CAPTURE
from .phase_times import PhaseTimes
from .profiled_iterations import ProfiledIterations
from .program_watch import ProgramWatch
from .timed_iterations import TimedIterations

# Iterations before a capture are its warm-up: three of torch's documentation, eleven with DDP. In a
# program whose text mentions a capture so many are waited for, and no longer than this; more on a
# stream of their own, as the documentation has it.
_MOST_BEFORE_CAPTURE = 16
_MOST_BEFORE_CAPTURE_NS = 10_000_000_000
_MOST_ON_SIDE_STREAM = 64


class Stage(enum.Enum):
    """How far the run is; the values are the names in the protocol."""

    WARM_UP = "warm-up"
    TIMING = "timing"
    PROFILING = "profiling"
    SAVING = "saving"


class Stages:
    """Goes from one stage to the next as iterations end.

    Args:
        traces: The traces of captured CUDA graphs, whose replays belong to the profiled iterations.
        processes_of_ranks: The processes that belong to this run besides this one.
        all_ranks: The sum of what every rank gives, which all wait for.
        complete: Writes the recording and ends the process.
    """

    def __init__(
        self,
        spec: RunSpec,
        tracker: IterationTracker,
        program: ProgramWatch,
        timed: TimedIterations,
        profiled: ProfiledIterations,
        traces: CaptureTraces,
        children: ChildProcesses | None,
        processes_of_ranks: Callable[[], frozenset[int]],
        all_ranks: Callable[[str, int], int],
        complete: Callable[[types.FrameType], None],
    ) -> None:
        self._spec = spec
        self._tracker = tracker
        self._program = program
        self._timed = timed
        self._profiled = profiled
        self._traces = traces
        self._children = children
        self._processes_of_ranks = processes_of_ranks
        self._all_ranks = all_ranks
        self._complete = complete
        self.stage = Stage.WARM_UP
        # Without warm-up, the first iteration begins with the first thing that a loop does.
        self.before_first = spec.iterations.warmup == 0
        self.warmed_up = 0
        # The iterations after the profiled ones, while they run.
        self.extra: ExtraIterations | None = None
        self._compilations_before = 0
        self._ranks_compile = False
        self._first_boundary_ns = 0

    def is_measuring(self) -> bool:
        """Whether an iteration is timed or profiled."""
        return self.stage in (Stage.TIMING, Stage.PROFILING) and self.extra is None

    def open_phase_times(self) -> PhaseTimes | None:
        """Those of the iteration that runs, where it is timed."""
        if self.extra is None:
            return self._timed.phase_times if self.stage is Stage.TIMING else None
        more = self.extra.more_times
        return None if more is None else more.phase_times

    def progress(self, done: int, total: int) -> None:
        """Reports how far the stage is."""
        self._tracker.host.progress(self.stage.value, done, total)

    def decide(self, verdict: Verdict, frame: types.FrameType) -> None:
        """A signal of the iterations came, and this is what it means for them."""
        now_ns = time.perf_counter_ns()
        self._profiled.signal_ns = time.time_ns()
        try:
            self._advance(verdict, frame, now_ns)
        except Exception as error:
            # Nothing can be measured any more, and the program may run for ever.
            why = f"the recorder failed: {type(error).__name__}: {error}"
            self._tracker.host.finish("exited", why)

    def _advance(self, verdict: Verdict, frame: types.FrameType, now_ns: int) -> None:
        if verdict is Verdict.NOTHING or self.stage is Stage.SAVING:
            return
        program, tracker = self._program, self._tracker
        if program.graphs.is_capturing():
            # Nothing can be measured now, and what is captured is no iteration.
            return
        if verdict is Verdict.RESTART:
            # This signal need not be the end of an iteration; the next boundary is.
            self.warmed_up = max(0, min(self.warmed_up, self._spec.iterations.warmup) - 1)
            self.restart()
            program.observed.begin(anew=True)
            return
        tracker.boundaries += 1
        if self.is_measuring() and program.observed.look_away():
            program.look_away(is_profiled=self._profiled.is_on)
        if self.stage is Stage.WARM_UP:
            program.calls.of_all = True
            program.observed.begin()
        if tracker.boundaries == 1:
            tracker.sources.read_texts(tracker.began_ns)
        if self._was_compiled() and self._may_restart():
            self.restart()
        elif self.stage is Stage.WARM_UP:
            self._warmed_up_one()
        elif self.stage is Stage.TIMING:
            self._timed_one(now_ns)
        elif self.stage is Stage.PROFILING:
            self._profiled_one(frame, now_ns)

    def _was_compiled(self) -> bool:
        """Whether something was compiled in the iteration that has ended, in any of the ranks."""
        is_used = self._program.compiled.is_used
        compiled = self._program.compiled.compilations - self._compilations_before
        self._compilations_before += compiled
        if self._tracker.boundaries == 1:
            # Where one of the ranks compiles, all of them have to ask after each iteration.
            self._ranks_compile = self._all_ranks("compilers", int(is_used)) > 0
        if (self._ranks_compile or is_used) and self.stage is not Stage.PROFILING:
            return self._all_ranks("compiled", compiled) > 0
        return compiled > 0

    def _may_restart(self) -> bool:
        """Whether to begin anew after an iteration in which something was compiled."""
        tracker = self._tracker
        if self.stage is Stage.PROFILING:
            return False
        if self._spec.iterations.warmup == 0:
            # The program has too few iterations to leave one out.
            tracker.notes.add(
                "torch.compile compiled during a measured iteration, because there was no warm-up"
            )
            return False
        may = tracker.may_restart()
        if tracker.restarts == MOST_RESTARTS:
            tracker.notes.add(
                "torch.compile recompiles repeatedly, so the measured time includes compilation"
            )
        return may

    def restart(self) -> None:
        """Back to the warm-up: what was measured was no iteration as the others are."""
        program = self._program
        if self.stage is Stage.PROFILING:
            self._profiled.stop()
            self.stop_extra()
            self._profiled.forget()
            self._traces.forget_replays()
        self._timed.forget(program.device)
        program.loader_times.forget_times()
        self.stage = Stage.WARM_UP
        program.out_of_memory.start_history()
        program.look_at_all_modules()

    def forked(self) -> None:
        """In a forked child of the program, which is followed from here on. Nothing here asks the
        device, which most children must not.
        """
        self.warmed_up = 0
        self.before_first = self._spec.iterations.warmup == 0
        self.stage = Stage.WARM_UP
        self._timed.forget(torch.device("cpu"))
        self._program.loader_times.forget_times()
        self._program.look_at_all_modules()

    def _warmed_up_one(self) -> None:
        wanted = self._spec.iterations.warmup
        self.warmed_up += 1
        self.progress(min(self.warmed_up, wanted), wanted)
        if self.warmed_up >= wanted and self._awaits_children():
            return
        if self.warmed_up >= wanted and not self._awaits_capture():
            self._begin_timing()

    def _awaits_children(self) -> bool:
        """Whether this is a child that calls a model and has not trained yet, or one beside which
        others are about to train.
        """
        children = self._children
        if children is None or not children.is_child:
            return False
        return not children.is_ours or children.awaits_others()

    def _awaits_capture(self) -> bool:
        """Whether the iterations so far may be the warm-up of a capture that is still to come."""
        boundaries = self._tracker.boundaries
        if boundaries == 1:
            self._first_boundary_ns = time.perf_counter_ns()
        mentions = self._tracker.sources.mention
        if not torch.cuda.is_initialized() or not mentions(MENTIONS_CAPTURE):
            return False
        if torch.cuda.current_stream() != torch.cuda.default_stream():
            return boundaries < _MOST_ON_SIDE_STREAM
        took_ns = time.perf_counter_ns() - self._first_boundary_ns
        is_early = boundaries < _MOST_BEFORE_CAPTURE and took_ns < _MOST_BEFORE_CAPTURE_NS
        return self._program.graphs.count == 0 and is_early

    def begin_without_warm_up(self) -> None:
        """The first thing that a loop does, where the first iteration is measured."""
        self.before_first = False
        self._tracker.notes.add(
            "the first iteration was measured. It is slower than later ones, because it includes "
            "one-time work: "
            "lazy initialization, first allocations and, on a GPU, the selection of cuDNN "
            "algorithms"
        )
        self._begin_timing()

    def _begin_timing(self) -> None:
        program, tolerating = self._program, self._tracker.notes.tolerating
        program.device = device.used_device(self._spec.device)
        program.look_away(is_profiled=self._profiled.is_on)
        tolerating("the zeros in activations", program.sparsity.settle)
        program.observed.timing_begins(program.device)
        program.out_of_memory.stop_history()
        self._timed.prepare(program.device)
        self.stage = Stage.TIMING
        self.progress(0, self._spec.iterations.timed)
        self._all_ranks("timing", 0)
        self._tracker.host.timed(0)
        if self._spec.iterations.timed == 0:
            # Earlier runs timed them.
            self._begin_profiling()
            return
        self._timed.timer.begin()

    def _timed_one(self, now_ns: int) -> None:
        if not self._timed.iteration_ended(now_ns):
            return
        if self._spec.iterations.profiled == 0:
            # A later run profiles them.
            self._complete(sys._getframe())
            return
        self._begin_profiling()

    def _begin_profiling(self) -> None:
        self._program.observed.timing_ended(self._processes_of_ranks())
        self.stage = Stage.PROFILING
        self.progress(0, self._spec.iterations.profiled)
        quick = is_quick(self._spec, self._timed.timer)
        self._profiled.begin(for_times=PROFILED_FOR_TIMES if quick else 0)

    def _profiled_one(self, frame: types.FrameType, now_ns: int) -> None:
        if self.extra is not None:
            if not self.extra.iteration_ended(now_ns):
                self._complete(frame)
            return
        is_last = self._profiled.iteration_ended(frame)
        wanted = self._spec.iterations.profiled
        self.progress(min(len(self._profiled.windows), wanted), wanted)
        if is_last:
            self._profiled.stop()
            self._run_extra(frame)
        else:
            self._profiled.begin_next(frame)

    def _run_extra(self, frame: types.FrameType) -> None:
        """Goes on for some iterations where these tell more; without any, it is complete."""
        if self._spec.iterations.timed == 0:
            # The program has no more iterations, or too few.
            self._complete(frame)
            return
        self.extra = ExtraIterations(
            self._spec,
            self._tracker.began_ns,
            self._tracker.sources,
            self._program.observed,
            self._tracker.finder,
            self._timed.timer,
            self._timed.phase_times,
            self._profiled.again,
            self._all_ranks,
            self._tracker.notes.tolerating,
        )
        if not self.extra.goes_on():
            self._complete(frame)

    def stop_extra(self) -> None:
        """Ends the iterations after the profiled ones, and keeps what they timed."""
        extra, self.extra = self.extra, None
        if extra is not None:
            extra.stop()
            self._timed.timer, self._timed.phase_times = extra.timer, extra.phase_times
