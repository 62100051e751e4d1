"""Follows the program into child processes of `multiprocessing`.

The first process that runs a backward pass or an optimizer step is recorded. A forked child already
has the recorder; a spawned one (spawn, forkserver) gets it with its preparation data. Workers of a
data loader, and processes that only call a model, are never recorded.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing import process as processes
from multiprocessing import spawn
from time import monotonic_ns
from typing import Any, Protocol

from ...protocol import trainer_state
from ...protocol.spec import RunSpec
from ...protocol.trainer_state import ChildHost

# The folder that contains `ridgeline_agent`, three packages up.
_AGENT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
# Runs in a spawned child, before its own preparation. Without torch on the path, or after an error
# of the agent, the child continues normally.
_BEGIN = """\
import sys
kept = list(sys.path)
sys.path[:] = [agent, *path]
try:
    from ridgeline_agent.record.patches.child_processes import begin
    begin(spec)
except Exception as error:
    why = f"{type(error).__name__}: {error}"
    print(f"ridgeline: this child process is not recorded: {why}", file=sys.stderr)
finally:
    sys.path[:] = kept
"""
# How long the recorded child extends its warm-up until the others train too: those that the program
# starts together, and those that exist and still load data.
_MIN_WAIT_NS = 300_000_000
_MAX_WAIT_NS = 5_000_000_000
# Signals that a rank other than the first lets pass, so that the first one can claim the recording.
_LET_PASS = 3


class ChildRecorder(Protocol):
    """Receives events in a child process. Implemented by the recorder."""

    def ignore(self) -> None:
        """This process is not recorded."""

    def child_ended(self) -> None:
        """The child's target function has returned."""

    def child_raised(self, error: BaseException) -> None:
        """The child's target function raised an exception."""


class ChildProcesses:
    """Which process of the program is recorded, from the view of one of them."""

    def __init__(self, spec: RunSpec, is_child: bool = False) -> None:
        self.is_child = is_child
        # Whether `multiprocessing` started it. After the program's own `os.fork()`, two processes
        # continue the same loop, and the first one is recorded.
        self._is_started = is_child
        self._spec = spec
        self._is_ours: bool | None = None
        self._let_pass = 0
        self._claimed_ns = 0
        self.host = ChildHost(spec.out)

    def install(self, recorder: ChildRecorder) -> None:
        """Hooks the start and the end of child processes."""
        original_bootstrap: Any = processes.BaseProcess._bootstrap  # type: ignore[attr-defined]
        original_data: Callable[[str], dict[str, Any]] = spawn.get_preparation_data

        def _bootstrap(child: Any, *args: Any, **kwargs: Any) -> Any:
            self._is_started = True
            if self.is_child and self._is_ours is not False:
                if _is_loader_worker(child):
                    self._is_ours = False
                    recorder.ignore()
                else:
                    trainer_state.count_child(self._spec.out)
                    child.run = _followed(child.run, recorder)
            return original_bootstrap(child, *args, **kwargs)

        def get_preparation_data(name: str) -> dict[str, Any]:
            data = original_data(name)
            if self._is_undecided() and not self.is_other_process():
                data["ridgeline"] = _Begin(self._spec)
            return data

        processes.BaseProcess._bootstrap = _bootstrap  # type: ignore[attr-defined]
        spawn.get_preparation_data = get_preparation_data

    def forked(self) -> bool:
        """Called in a forked child. Returns whether to watch for training."""
        if not self._is_undecided():
            self._is_ours = False
            return False
        # Also if another child is already recorded, because the number of training processes is
        # reported.
        self.is_child = True
        self._is_started = False
        self.host = ChildHost(self._spec.out)
        return True

    def is_recorded(self) -> bool:
        """Whether this process is recorded. Call it when it trains: the first one that does is
        recorded.
        """
        if self.is_child and not self._is_started:
            return False
        if self._is_ours is None:
            if self.is_child:
                trainer_state.count_trainer(self._spec.out)
                if _is_another_rank() and self._let_pass < _LET_PASS:
                    self._let_pass += 1
                    return False
            self._is_ours = self.host.is_recorded = trainer_state.claim(self._spec.out)
            self._claimed_ns = monotonic_ns()
        return self._is_ours

    def awaits_others(self) -> bool:
        """Whether other children are about to train and will share the machine. False if an earlier
        run found that there are few iterations.
        """
        if not self.is_child or self._spec.iterations.signals is not None:
            return False
        since_ns = monotonic_ns() - self._claimed_ns
        if since_ns >= _MAX_WAIT_NS:
            return False
        return since_ns < _MIN_WAIT_NS or trainer_state.may_train(self._spec.out)

    @property
    def is_ours(self) -> bool:
        """Whether this process is known to be the recorded one."""
        return self._is_ours is True

    @property
    def is_decided(self) -> bool:
        """Whether it is known if this process is recorded."""
        return self._is_ours is not None

    def is_other_process(self) -> bool:
        """Whether another process is recorded."""
        return self._is_ours is False or (
            self._is_ours is None and trainer_state.is_claimed(self._spec.out)
        )

    def has_reported(self) -> bool:
        """Whether another process was recorded and has reported its outcome."""
        if not self.is_other_process():
            return False
        state = trainer_state.read(self._spec.out)
        return state is not None and state.outcome is not None

    def why_nothing_trains(self) -> str | None:
        """Returns the message for a program in which nothing trained, in its first process."""
        return None if self.is_child else trainer_state.why_nothing_trains(self._spec.out)

    def failure_folder(self) -> str | None:
        """Returns the folder for the manifest of the first child that failed before it trained."""
        return trainer_state.failure_folder(self._spec.out)

    def trainers(self) -> int | None:
        """Returns how many children train, including this one; None if this is not a child."""
        return trainer_state.trainers(self._spec.out) if self.is_child else None

    def siblings(self) -> frozenset[int]:
        """Returns the program's processes if this is a child, including itself."""
        own = {os.getpid(), os.getppid()}
        return trainer_state.children(self._spec.out) | own if self.is_child else frozenset()

    def note(self) -> str | None:
        """Returns a note for a child's recording."""
        count = self.trainers()
        if count is None:
            return None
        if count < 2:
            return "the program trains in a child process, which was recorded"
        which = "rank 0" if _has_ranks() else "one"
        return (
            f"the program trains in {count} child processes on this machine: {which} of them was "
            "recorded while the "
            "others ran"
        )

    def _is_undecided(self) -> bool:
        """Whether a process that is started from here may be the first one that trains."""
        # Model calls in an earlier run were those of the program's first process.
        return self._is_ours is None and self._spec.iterations.found_by != "module"


class _Begin:
    """Starts the recorder when it is unpickled."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = pickle.dumps(spec)

    def __reduce__(self) -> tuple[Any, ...]:
        names = {"agent": _AGENT, "path": list(sys.path), "spec": self._spec}
        return (exec, (_BEGIN, names))


def begin(pickled: bytes) -> None:
    """Installs the recorder in a spawned child."""
    spec: RunSpec = pickle.loads(pickled)
    # Before torch is imported, so that a process that is already recorded knows about this one.
    trainer_state.count_child(spec.out)

    from ...patches.overlay import Overlay
    from ..recorder import Recorder

    children = ChildProcesses(spec, is_child=True)
    overlay = Overlay(spec.root, spec.overlay)
    Recorder(spec, children.host, overlay, children).install()
    overlay.install()


def _followed(run: Callable[[], None], recorder: ChildRecorder) -> Callable[[], None]:
    def followed() -> None:
        try:
            run()
        except BaseException as error:
            recorder.child_raised(error)
            raise
        recorder.child_ended()

    return followed


def _is_loader_worker(child: Any) -> bool:
    target = getattr(child, "_target", None)
    return str(getattr(target, "__module__", "")).startswith("torch.utils.data")


def _has_ranks() -> bool:
    distributed: Any = sys.modules.get("torch.distributed")
    is_available = distributed is not None and distributed.is_available()
    return bool(is_available and distributed.is_initialized() and distributed.get_world_size() > 1)


def _is_another_rank() -> bool:
    distributed: Any = sys.modules.get("torch.distributed")
    return _has_ranks() and distributed.get_rank() != 0
