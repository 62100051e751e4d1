"""The stages of a measured run: warm-up, timing, profiling, and saving the recording."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import sys
import threading
import types
from collections.abc import Callable
from time import perf_counter_ns, time_ns

import torch

from ..iterations.finder import Verdict
from ..iterations.tracker import MAX_RESTARTS, IterationTracker
from ..protocol.spec import RunSpec
from . import device
from .capture_traces import CaptureTraces
from .extra.extra_iterations import ExtraIterations, is_quick
from .extra.more_times import PROFILED_FOR_TIMES
from .observed.line_times import seconds_left
from .patches.child_processes import ChildProcesses
from .patches.cuda_graphs import MENTIONS_CAPTURE
from .phase_times import PhaseTimes
from .profiled_iterations import ProfiledIterations
from .program_watch import ProgramWatch
from .timed_iterations import TimedIterations

# Iterations before a capture are its warm-up: three in torch's documentation, eleven with DDP. In a
# program whose text mentions a capture, wait for it for this number of iterations and this time;
# for more iterations on a side stream, as in the documentation.
_MAX_BEFORE_CAPTURE = 16
_MAX_BEFORE_CAPTURE_NS = 10_000_000_000
_MAX_ON_SIDE_STREAM = 64
# A profiled iteration takes longer than others. The recording has to be written within the time
# limit, too.
_PROFILED_TO_TIMED = 1.5
_SHARE_TO_USE = 0.8


class Stage(enum.Enum):
    """The current stage. The values are the names in the protocol."""

    WARM_UP = "warm-up"
    TIMING = "timing"
    PROFILING = "profiling"
    SAVING = "saving"


class Stages:
    """Advances from stage to stage as iterations end.

    Args:
        traces: The traces of captured CUDA graphs, whose replays belong to the profiled iterations.
        processes_of_ranks: Returns the other processes of this run.
        all_ranks: Waits for all ranks and returns the sum of their numbers.
        complete: Writes the recording and ends the process.
        may_give_up: Whether the recording may be written before an iteration has ended.
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
        complete: Callable[[types.FrameType | None], None],
        may_give_up: bool,
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
        self._may_give_up = may_give_up
        # Held while an extra iteration ends, and from giving up on one until the process ends.
        self._ending = threading.Lock()
        self._thread = 0
        self.stage = Stage.WARM_UP
        # Without warm-up, the first iteration begins with the loop's first hook call.
        self.before_first = spec.iterations.warmup == 0
        self.warmed_up = 0
        # The iterations after the profiled ones, while they run.
        self.extra: ExtraIterations | None = None
        self._compilations_before = 0
        self._ranks_compile = False
        self._first_boundary_ns = 0
        # The end of the last warm-up iteration.
        self._warmed_up_ns: int | None = None
        # The begin of the latest model call during the warm-up.
        self._model_called_ns: int | None = None

    def is_measuring(self) -> bool:
        """Whether an iteration is timed or profiled."""
        return self.stage in (Stage.TIMING, Stage.PROFILING) and self.extra is None

    def open_phase_times(self) -> PhaseTimes | None:
        """Returns the phase times of the current iteration, if it is timed."""
        if self.extra is None:
            return self._timed.phase_times if self.stage is Stage.TIMING else None
        more = self.extra.more_times
        return None if more is None else more.phase_times

    def progress(self, done: int, total: int) -> None:
        """Reports the progress of the stage."""
        self._tracker.host.progress(self.stage.value, done, total)

    def decide(self, verdict: Verdict, frame: types.FrameType) -> None:
        """Acts on a signal of the iterations and its meaning."""
        now_ns = perf_counter_ns()
        self._profiled.signal_ns = time_ns()
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
            # Nothing can be measured during a capture, and it is not an iteration.
            return
        if verdict is Verdict.RESTART:
            # This signal need not be the end of an iteration; the next boundary is.
            self.warmed_up = max(0, min(self.warmed_up, self._spec.iterations.warmup) - 1)
            self.restart()
            program.observed.begin(discards_previous=True)
            return
        tracker.boundaries += 1
        if self.is_measuring() and program.observed.stop_inspecting():
            program.stop_inspecting(is_profiled=self._profiled.is_on)
        if self.stage is Stage.WARM_UP:
            program.calls.of_all = True
            program.observed.begin()
        if tracker.boundaries == 1:
            tracker.sources.read_texts(tracker.began_ns)
            program.observed.first_iteration_ended()
        if self._was_compiled() and self._may_restart():
            self.restart()
        elif self.stage is Stage.WARM_UP:
            self._warmed_up_one()
        elif self.stage is Stage.TIMING:
            self._timed_one(now_ns)
        elif self.stage is Stage.PROFILING:
            self._profiled_one(frame, now_ns)

    def _was_compiled(self) -> bool:
        """Whether something was compiled in the iteration that has ended, in any rank."""
        is_used = self._program.compiled.is_used
        compiled = self._program.compiled.compilations - self._compilations_before
        self._compilations_before += compiled
        if self._tracker.boundaries == 1:
            # If one rank compiles, all of them must synchronize after each iteration.
            self._ranks_compile = self._all_ranks("compilers", int(is_used)) > 0
        if (self._ranks_compile or is_used) and self.stage is not Stage.PROFILING:
            return self._all_ranks("compiled", compiled) > 0
        return compiled > 0

    def _may_restart(self) -> bool:
        """Whether to restart after an iteration in which something was compiled."""
        tracker = self._tracker
        if self.stage is Stage.PROFILING:
            return False
        if self._spec.iterations.warmup == 0:
            # The program has too few iterations to skip one.
            tracker.notes.add(
                "torch.compile compiled during a measured iteration, because there was no warm-up"
            )
            return False
        may = tracker.may_restart()
        if tracker.restarts == MAX_RESTARTS:
            tracker.notes.add(
                "torch.compile recompiles repeatedly, so the measured time includes compilation"
            )
        return may

    def restart(self) -> None:
        """Returns to the warm-up, because the measured iterations were not typical."""
        program = self._program
        if self.stage is Stage.PROFILING:
            self._profiled.stop()
            self.stop_extra()
            self._profiled.forget()
            self._traces.forget_replays()
        self._timed.forget(program.device)
        program.loader_times.forget_times()
        self._warmed_up_ns = None
        self.stage = Stage.WARM_UP
        program.out_of_memory.start_history()
        program.inspect_all_modules()

    def forked(self) -> None:
        """Continues in a forked child of the program. Does not access the device, because most
        children must not.
        """
        self.warmed_up = 0
        self._warmed_up_ns = None
        self.before_first = self._spec.iterations.warmup == 0
        self.stage = Stage.WARM_UP
        self._timed.forget(torch.device("cpu"))
        self._program.loader_times.forget_times()
        self._program.inspect_all_modules()

    def _warmed_up_one(self) -> None:
        self.warmed_up += 1
        if self.warmed_up == 1 < self._spec.iterations.warmup:
            self._shorten_warm_up()
        wanted = self._spec.iterations.warmup
        self.progress(min(self.warmed_up, wanted), wanted)
        before_ns, self._warmed_up_ns = self._warmed_up_ns, perf_counter_ns()
        if self.warmed_up >= wanted and before_ns is not None:
            self._keep_to_limit((self._warmed_up_ns - before_ns) / 1e9)
        if self.warmed_up >= wanted and self._awaits_children():
            return
        if self.warmed_up >= wanted and not self._awaits_capture():
            self._begin_timing()

    def _keep_to_limit(self, iteration_seconds: float, timed: int = 0) -> None:
        """Measures fewer iterations if the time limit would end the run before all of them, of
        which some are timed already.
        """
        spec = self._spec
        wanted = spec.iterations
        left = seconds_left(spec.limits.seconds, self._tracker.began_ns)
        if left is None or spec.rank is not None or min(wanted.timed, wanted.profiled) <= 1:
            return
        to_time = max(wanted.timed - timed, 0)
        needed = (to_time + wanted.profiled * _PROFILED_TO_TIMED) * iteration_seconds
        if needed < left * _SHARE_TO_USE:
            return
        # The one after those that are timed has begun.
        self._measure_fewer(timed=timed + 1, warmup=wanted.warmup)
        self._tracker.notes.add(
            f"an iteration takes {iteration_seconds:.1f} s, so only {_count(timed + 1)} timed and "
            "one profiled. A higher time limit (`--seconds`) leaves time for more"
        )

    def _awaits_children(self) -> bool:
        """Whether this is a child that calls a model and has not trained yet, or whose siblings are
        about to train.
        """
        children = self._children
        if children is None or not children.is_child:
            return False
        return not children.is_ours or children.awaits_others()

    def _awaits_capture(self) -> bool:
        """Whether the iterations so far may be the warm-up of a future capture."""
        boundaries = self._tracker.boundaries
        if boundaries == 1:
            self._first_boundary_ns = perf_counter_ns()
        mentions = self._tracker.sources.mention
        if not torch.cuda.is_initialized() or not mentions(MENTIONS_CAPTURE):
            return False
        if torch.cuda.current_stream() != torch.cuda.default_stream():
            return boundaries < _MAX_ON_SIDE_STREAM
        took_ns = perf_counter_ns() - self._first_boundary_ns
        is_early = boundaries < _MAX_BEFORE_CAPTURE and took_ns < _MAX_BEFORE_CAPTURE_NS
        return self._program.graphs.count == 0 and is_early

    def model_called(self) -> None:
        """A model is called during the warm-up."""
        self._model_called_ns = perf_counter_ns()

    def _shorten_warm_up(self) -> None:
        """After the first iteration: measures the next ones, if the time limit would end the run
        before the other iterations of the warm-up. An iteration takes at least as long as its last
        model call and what follows it.
        """
        spec, called_ns = self._spec, self._model_called_ns
        left = seconds_left(spec.limits.seconds, self._tracker.began_ns)
        if left is None or called_ns is None or spec.rank is not None:
            return
        wanted = spec.iterations
        seconds = (perf_counter_ns() - called_ns) / 1e9
        # The rest of the warm-up, one that is timed, and one that is profiled.
        needed = (wanted.warmup - 1 + 1 + _PROFILED_TO_TIMED) * seconds
        if needed < left * _SHARE_TO_USE or min(wanted.timed, wanted.profiled) <= 1:
            return
        self._measure_fewer(timed=1, warmup=1)
        self._tracker.notes.add(
            f"an iteration takes {seconds:.1f} s or more, so there was only one iteration of "
            "warm-up, one was timed and one profiled. A higher time limit (`--seconds`) leaves "
            "time for more"
        )

    def _measure_fewer(self, timed: int, warmup: int) -> None:
        """Profiles one iteration only, after `timed` ones."""
        fewer = dataclasses.replace(
            self._spec.iterations, warmup=warmup, timed=timed, timed_at_most=None, profiled=1
        )
        self._spec = dataclasses.replace(self._spec, iterations=fewer)
        self._timed.requested = fewer
        self._profiled.wanted = fewer.profiled

    def begin_without_warm_up(self) -> None:
        """Called for the loop's first hook call, if the first iteration is measured."""
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
        program.stop_inspecting(is_profiled=self._profiled.is_on)
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
            host_ns = self._timed.timer.host_ns
            self._keep_to_limit(host_ns[-1] / 1e9, len(host_ns))
            return
        if self._spec.iterations.profiled == 0:
            # A later run profiles them.
            self._complete(sys._getframe())
            return
        self._begin_profiling()

    def _begin_profiling(self) -> None:
        self._program.observed.timing_ended(self._processes_of_ranks())
        if self._tracker.guard.is_inert:
            # The recorder gave way to the program's own profiler.
            return
        self.stage = Stage.PROFILING
        self.progress(0, self._spec.iterations.profiled)
        quick = is_quick(self._spec, self._timed.timer)
        self._profiled.begin(for_times=PROFILED_FOR_TIMES if quick else 0)

    def _profiled_one(self, frame: types.FrameType, now_ns: int) -> None:
        if self.extra is not None:
            with self._ending:
                goes_on = self.extra.iteration_ended(now_ns)
            if not goes_on:
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
        """Runs more iterations where they add information; without any, the run is complete."""
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
            self._profiled.times_with_memory,
            self._profiled.again,
            self._profiled.log,
            self._all_ranks,
            self._tracker.notes.tolerating,
            self._give_up if self._may_give_up else None,
        )
        self._thread = threading.get_ident()
        if not self.extra.goes_on():
            self._complete(frame)

    def _give_up(self) -> None:
        """Completes the recording while an extra iteration runs that takes too long. Runs in a
        thread of its own.
        """
        with self._ending:
            of_loops = None if self.extra is None else self.extra.awaited_round
            more = None if self.extra is None else self.extra.more_times
            if of_loops is None:
                # It has ended just now.
                return
            self._tracker.guard.is_inert = True
            frame = sys._current_frames().get(self._thread)
            if more is not None and more.timer.count == of_loops.place:
                self._tracker.notes.add(
                    f"after every {of_loops.length} iterations, the program does something that "
                    f"takes longer than a few seconds{self._at(frame)}. Times and throughput do "
                    "not include it"
                )
            self._complete(frame)

    def _at(self, frame: types.FrameType | None) -> str:
        """Returns where the program is, and what called that, as the end of a clause."""
        sources = self._tracker.sources
        lines = list(itertools.islice(sources.user_lines(frame), 2))
        paths = sources.paths()
        places = [f"{paths[file]}:{line}" for file, line in lines]
        return f" ({', called from '.join(places)})" if places else ""

    def wait_for_saving(self) -> None:
        """Waits until the process ends, if another thread is writing the recording."""
        with self._ending:
            pass

    def stop_extra(self) -> None:
        """Ends the extra iterations, and keeps their times."""
        extra, self.extra = self.extra, None
        if extra is not None:
            extra.stop()
            self._timed.timer, self._timed.phase_times = extra.timer, extra.phase_times


def _count(iterations: int) -> str:
    return "one was" if iterations == 1 else f"{iterations} were"
