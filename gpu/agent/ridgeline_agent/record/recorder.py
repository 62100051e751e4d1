"""The recorder: measures a program's iterations and writes the recording (docs/recording.md).

A run has three stages. In the *warm-up*, iterations are found and the program reaches its steady
state. In the *timing*, iterations run normally, with hooks that cost a microsecond: their time is
the one that is reported. In the *profiling*, the line clock and Kineto are on: they provide the
shares by which the reported time is divided. After that the recording is written and the process
ends.

The recorder consists of these parts: `hook_receiver` and `graph_captures` receive the program's
calls, `stages` advances from stage to stage, `timed_iterations` and `profiled_iterations` measure,
`program_watch` stores facts about the program, and `recording_writer` writes all of it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable

import torch

from ..failure.exception import describe_failure, shorten, without_absolute_paths
from ..iterations.tracker import IterationTracker
from ..patches import hooks
from ..patches.harmless import harmless
from ..patches.overlay import Overlay
from ..patches.replacements import restore
from ..protocol.host import Host
from ..protocol.rank_states import processes_of_run
from ..protocol.spec import RunSpec
from ..system.filtered_stderr import FilteredStderr
from ..system.forks import call_in_forked
from .alignment import Alignment
from .capture_traces import KINETO_MESSAGE, CaptureTraces
from .graph_captures import GraphCaptures
from .hook_receiver import HookReceiver
from .patches.child_processes import ChildProcesses
from .profiled_iterations import ProfiledIterations
from .program_watch import ProgramWatch
from .recording_writer import RecordingWriter
from .sparsity import SPARSE_TYPES
from .stages import Stage, Stages
from .timed_iterations import TimedIterations


class Recorder:
    """Measures the program of this process. One per process.

    Args:
        children: Follows the program into its child processes; None if only this process is
            recorded.
        in_kernel: The process is a running kernel, which continues after the recording.
    """

    def __init__(
        self,
        spec: RunSpec,
        host: Host,
        overlay: Overlay,
        children: ChildProcesses | None = None,
        in_kernel: bool = False,
    ) -> None:
        signals = spec.iterations.signals
        tracker = IterationTracker(spec, host, overlay, "the profiler", signals)
        self._spec = spec
        self._children = children
        self._in_kernel = in_kernel
        self._tracker = tracker
        self.guard = tracker.guard
        self._alignment = Alignment(spec.rank is not None)
        program = self._program = ProgramWatch(tracker)
        timed = self._timed = TimedIterations(spec, tracker, program.observed, self._all_ranks)
        profiled = ProfiledIterations(spec, tracker, program, self._all_ranks)
        self._profiled = profiled
        traces = CaptureTraces(spec.out)
        stages = self._stages = Stages(
            spec,
            tracker,
            program,
            timed,
            profiled,
            traces,
            children,
            self._processes_of_ranks,
            self._all_ranks,
            self._complete,
            may_give_up=not in_kernel,
        )
        self._receiver = HookReceiver(
            tracker, program, profiled, traces, stages, children, self.ignore
        )
        self._graph_captures = GraphCaptures(spec, tracker, program, profiled, traces, stages)
        self._writer = RecordingWriter(
            spec, tracker, program, timed, profiled, traces, stages, children
        )

    # Called by the host.

    def install(self) -> None:
        """Installs every hook. Call it before any user code runs."""
        program, receiver = self._program, self._receiver
        calls = hooks.ModuleCalls(receiver, SPARSE_TYPES, receiver.module_gave)
        program.install(receiver, calls, self._spec.eager, self._in_kernel)
        program.graphs.install(self._graph_captures)
        call_in_forked(self._forked)
        if self._children is not None:
            what = "the program's processes"
            self._tracker.notes.tolerating(what, self._children.install, self)
        calls.start()
        self._stages.progress(0, self._spec.iterations.warmup)

    def adopt(
        self, optimizers: Iterable[torch.optim.Optimizer], gives_way: Callable[[], None]
    ) -> None:
        """Prepares for a kernel. Call it before `install`.

        Args:
            optimizers: Existing optimizers that will probably step.
            gives_way: Ends the recording if the program has a profiler of its own.
        """
        signals = self._tracker.signals
        signals.adopts = True
        for optimizer in optimizers:
            self._tracker.optimizer_created(optimizer)
        self._profiled.messages = FilteredStderr(KINETO_MESSAGE)
        profilers = self._program.observed.profilers
        profilers.gives_way, profilers.is_ours_on = gives_way, lambda: self._profiled.is_on

    def uninstall(self) -> None:
        """Stops measuring, restores everything that was replaced, and releases the results."""
        self.ignore()
        self._program.calls.stop()
        restore()
        # The program and Dynamo may keep functions that call these, such as an optimizer's `step`.
        # Through them, they would keep everything.
        program = self._program
        for hook in (self._receiver, self._graph_captures):
            hook.__dict__ = {"guard": self.guard}
        for part in (program.compiled, program.loader_times, program.observed.profilers):
            part.__dict__.clear()

    def iterations_seen(self) -> int:
        """Returns the number of iterations of a program that ended early."""
        grouping = self._tracker.finder.grouping_at_end()
        return self._tracker.boundaries if grouping is None else grouping.count

    def provided(
        self, batch_size: int, inputs: object, iterations: tuple[Callable[..., object], ...]
    ) -> None:
        """A provider returned its inputs for this batch size, and the functions that run an
        iteration.
        """
        self._program.batch.provided(batch_size)
        self._tracker.provided(inputs, iterations)

    @harmless
    def iteration_ended(self) -> None:
        """A provider's iteration has ended. This boundary needs no detection."""
        self._stages.decide(self._tracker.finder.ended(), sys._getframe(2))

    def ended(self) -> str:
        """The program ended early. Writes what was recorded and returns the outcome."""
        self._stages.wait_for_saving()
        host, stage, children = self._tracker.host, self._stages.stage, self._children
        if stage is Stage.SAVING:
            return "complete"
        if children is not None and children.is_other_process():
            why = "the child process that trains exited before enough iterations ran"
            host.finish("exited", why)
        try:
            complete = stage is Stage.PROFILING and bool(self._profiled.windows)
            if stage is Stage.TIMING and self._spec.iterations.profiled == 0:
                # If only times are needed, a shorter timing is enough.
                self._timed.timer.finish()
                complete = self._timed.timer.count > 0
            self._writer.write("complete" if complete else "short", sys._getframe(1), None)
        except OSError as error:
            host.finish("exited", write_failed(error))
        if not complete and children is not None and self._tracker.finder.grouping_at_end() is None:
            why_none = children.why_nothing_trains()
            if why_none is not None:
                host.finish("short", why_none)
        return "complete" if complete else "short"

    def failed(self, error: BaseException) -> None:
        """The program raised an exception. Writes a manifest with its description and location."""
        self._stages.wait_for_saving()
        if self._stages.extra is not None:
            # Everything that was requested had been recorded.
            self._complete(None)
        if self._children is not None and self._children.has_reported():
            # A child of the program was recorded, and its result is kept.
            return
        failure = describe_failure(error, self._spec.root, self._tracker.sources.file)
        failure["memory"] = self._tracker.notes.tolerating(
            "what held the memory", self._program.memory_at_failure, error
        )
        self._writer.write("failed", None, failure)

    # Called in a child process of the program (child_processes.ChildRecorder).

    def ignore(self) -> None:
        """Stops measuring in this process."""
        self.guard.is_inert = True
        self._profiled.ignore()

    def child_ended(self) -> None:
        """The child's target function has returned."""
        children = self._children
        if not self.guard.is_inert and children is not None and children.is_ours:
            children.host.ended(self.ended())

    def child_raised(self, error: BaseException) -> None:
        """The child's target function raised an exception."""
        children = self._children
        if self.guard.is_inert or children is None or not children.is_child:
            return
        if isinstance(error, SystemExit) and isinstance(error.__context__, Exception):
            # `torch.multiprocessing.spawn` reports the exception, and then exits.
            error = error.__context__
        if isinstance(error, SystemExit) and not error.code:
            self.child_ended()
            return
        if not children.is_ours:
            # It raised before it trained, which explains why nothing trained.
            if (folder := children.failure_folder()) is None:
                return
            self._writer.folder = folder
        self.failed(error)
        text = without_absolute_paths(f"{type(error).__name__}: {error}", self._spec.root)
        children.host.ended("failed", shorten(text, 500))

    # Called by the parts.

    def _complete(self, frame: types.FrameType | None) -> None:
        """Writes the recording and ends the process, from within the program's call."""
        children = self._children
        if children is not None and (
            children.is_other_process() or (children.is_child and not children.is_ours)
        ):
            self.ignore()
            return
        host = self._tracker.host
        try:
            self._writer.write("complete", frame, None)
        except Exception as error:
            host.finish("exited", write_failed(error))
        host.finish("complete")

    def _all_ranks(self, what: str, number: int) -> int:
        """Waits for all ranks and returns the sum of their numbers; 0 if others do not arrive."""
        total, tolerating = self._alignment.total, self._tracker.notes.tolerating
        return tolerating("the wait for the other ranks", total, what, number) or 0

    def _processes_of_ranks(self) -> frozenset[int]:
        """Returns the processes that the launcher started together with this one, or the program
        with this child. Empty without either.
        """
        rank = self._spec.rank
        if self._children is not None:
            return self._children.siblings()
        return frozenset() if rank is None else processes_of_run(self._spec.out, rank)

    def _forked(self) -> None:
        """In a child of the user's program, such as a loader's worker, stops measuring, unless the
        child may be the first process that trains.
        """
        children = self._children
        is_early = self._stages.stage in (Stage.WARM_UP, Stage.TIMING)
        if children is None or self.guard.is_inert or not is_early or not children.forked():
            self.ignore()
            return
        self._tracker.forked(children.host)
        self._stages.forked()


def write_failed(error: Exception) -> str:
    """The message for a recording that could not be written."""
    return f"the recording could not be written: {type(error).__name__}: {error}"
