"""A run, in the process of the user's program."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import multiprocessing
import os
import sys
import threading
from typing import Any, NoReturn

import torch

from ..estimate.estimator import Estimator
from ..estimate.preparation import estimator_of
from ..failure import crash_report
from ..failure.exception import EntryError, shorten, without_absolute_paths
from ..patches.overlay import Overlay
from ..patches.terminal_size import fake_terminal_size
from ..protocol.channel import Events, Sender
from ..protocol.spec import RunSpec
from ..record.patches.child_processes import ChildProcesses
from ..record.recorder import Recorder
from ..sandbox import confinement
from ..side_effects import policy as side_effects
from ..system.priority import set_low_priority
from ..system.private_files import make_folder
from ..trajectory.recorder import TrajectoryRecorder
from .entry import Provided, run_entry
from .interpreter import Interpreter
from .side_by_side import Turn, run_side_by_side


def run_here(request: dict[str, Any], events: Events, interpreter: Interpreter) -> NoReturn:
    """Runs the program in this process and ends the process. Does not return."""
    _run(RunSpec.from_json(request), events, interpreter, None)


def _run(spec: RunSpec, events: Events, interpreter: Interpreter, turn: Turn | None) -> NoReturn:
    host = RunHost(spec, events, turn)
    try:
        _start(spec, host, events, interpreter)
    except DeviceError as error:
        why = str(error)
    except BaseException as error:
        # An internal error, or a full disk. The program's own errors are caught further inside.
        why = f"the run could not be recorded: {type(error).__name__}: {error}"
    host.finish("exited", why)


class RunHost:
    """The recorder's host (host.Host)."""

    def __init__(self, spec: RunSpec, events: Events, turn: Turn | None) -> None:
        self._spec = spec
        self._events = events
        self._turn = turn
        self._process = os.getpid()

    def progress(self, stage: str, done: int, total: int) -> None:
        """Reports to the supervisor. A run that cannot report continues."""
        if not self.is_here():
            return
        _fill_standard_streams()
        with contextlib.suppress(OSError):
            self._events.send(
                {
                    "event": "progress",
                    "id": self._spec.id,
                    "stage": stage,
                    "done": done,
                    "total": total,
                }
            )

    def timed(self, iterations: int) -> None:
        """See host.Host. Without other versions there are no turns."""
        if self._turn is not None:
            self._turn.timed(iterations)

    def finish(self, outcome: str, message: str | None = None) -> NoReturn:
        """See host.Host. In a process that the program forked, only that process ends."""
        if self.is_here():
            with contextlib.suppress(OSError):
                self._events.send(
                    {
                        "event": "outcome",
                        "id": self._spec.id,
                        "outcome": outcome,
                        "message": message,
                    }
                )
        _flush()
        os._exit(0)

    @property
    def takes_turns(self) -> bool:
        """Whether it is one of several versions that are compared."""
        return self._turn is not None

    def is_here(self) -> bool:
        """Whether this is the run's process, and not one that the program forked."""
        return os.getpid() == self._process


def _start(spec: RunSpec, host: RunHost, events: Events, interpreter: Interpreter) -> NoReturn:
    if spec.low_priority:
        set_low_priority()
    make_folder(spec.out)
    _no_core_dump()
    crash_descriptor = crash_report.install(spec.out)
    events.send({"event": "started", "id": spec.id, "pid": os.getpid()})
    host.progress("starting", 0, 1)
    if spec.versions:
        run_side_by_side(spec, host, lambda one, turn: _run(one, turn, interpreter, turn))
    interpreter.set_environment(spec.env)
    if spec.side_effects != "allow" and spec.probe is None and not spec.estimate:
        side_effects.hold(spec)
    fake_terminal_size()
    _choose_device(spec)
    if spec.eager:
        # The variable alone is sufficient if the interpreter has not imported torch._dynamo yet.
        os.environ["TORCHDYNAMO_DISABLE"] = "1"
        torch._dynamo.config.disable = True
    _choose_threads(spec)
    confined = False
    if spec.estimate or spec.probe is not None:
        confined = _confine(spec, host, events, crash_descriptor)
    if spec.probe is not None:
        from ..probe.run_probes import run_probes

        run_probes(spec, host)
    recorder: Recorder | Estimator | TrajectoryRecorder
    if spec.estimate:
        recorder = estimator_of(spec, host, confined)
    elif spec.trajectory is not None:
        recorder = _trajectory_recorder_of(spec, spec.trajectory, host)
    else:
        recorder = _recorder_of(spec, host)
    error = _run_program(spec, interpreter, recorder)
    if not host.is_here():
        if isinstance(recorder, Recorder):
            recorder.child_ended() if error is None else recorder.child_raised(error)
        _end_like_python(error)
    if error is None:
        host.finish(recorder.ended())
    message = _summary(error, spec)
    try:
        recorder.failed(error)
    except OSError as write_error:
        why = write_error.strerror or str(write_error)
        host.finish("exited", f"{message} (the recording could not be written: {why})")
    # Only a recording has a manifest with the failure.
    host.finish("exited" if spec.trajectory is not None else "failed", message)


def _confine(spec: RunSpec, host: RunHost, events: Events, crash_descriptor: int | None) -> bool:
    """Sandboxes an estimate or a probe before its first line. Returns whether the kernel enforces
    it.
    """
    kept = [] if crash_descriptor is None else [crash_descriptor]
    if isinstance(events, Sender):
        kept.append(events.descriptor)
    try:
        return confinement.confine(spec, kept)
    except confinement.NotConfinedError as error:
        what = "probed" if spec.probe is not None else "estimated"
        host.finish(
            "exited",
            f"not {what}, because the process cannot be confined: {error}. The setting "
            "ridgeline.live.withoutSandbox allows it without a sandbox",
        )


def _recorder_of(spec: RunSpec, host: RunHost) -> Recorder:
    overlay = Overlay(spec.root, spec.overlay)
    # Ranks are recorded separately, and versions take turns.
    follows = spec.rank is None and not host.takes_turns
    recorder = Recorder(spec, host, overlay, ChildProcesses(spec) if follows else None)
    recorder.install()
    overlay.install()
    return recorder


def _trajectory_recorder_of(spec: RunSpec, steps: int, host: RunHost) -> TrajectoryRecorder:
    overlay = Overlay(spec.root, spec.overlay)
    recorder = TrajectoryRecorder(spec.out, steps, host)
    recorder.install()
    overlay.install()
    return recorder


def _run_program(
    spec: RunSpec, interpreter: Interpreter, recorder: Provided
) -> BaseException | None:
    """Runs the program. Returns the exception that made it fail, or None."""
    try:
        run_entry(spec, interpreter, recorder)
    except BaseException as error:
        if not (isinstance(error, SystemExit) and (error.code is None or error.code == 0)):
            if not isinstance(error, (SystemExit, EntryError)):
                _print_traceback(error)
            return error
    _wait_like_python()
    return None


def _wait_like_python() -> None:
    """Waits for the program's threads and child processes, in which some programs do their work."""
    # Pools of concurrent.futures wait for more work until they are notified that there is none.
    for notify_pool in reversed(getattr(threading, "_threading_atexits", [])):
        with contextlib.suppress(Exception):
            notify_pool()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    for child in multiprocessing.active_children():
        if not child.daemon:
            child.join()


def _print_traceback(error: BaseException) -> None:
    """Prints the traceback to the log like Python, without the agent's frames."""
    # The folder of `ridgeline_agent` with all its packages.
    agent = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(agent):
        traceback = traceback.tb_next
    with contextlib.suppress(Exception):
        # The user may have installed a hook, which may fail.
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)


def _summary(error: BaseException, spec: RunSpec) -> str:
    """Returns the line that the user sees first. The manifest has the details."""
    try:
        text = str(error)
    except Exception:
        text = ""
    if isinstance(error, SystemExit):
        return shorten(f"the program exited early: sys.exit({error.code})", 500)
    text = without_absolute_paths(text, spec.root)
    name = "" if isinstance(error, EntryError) else f"{type(error).__name__}: "
    return shorten(name + text, 500)


def _end_like_python(error: BaseException | None) -> NoReturn:
    """Ends a process that the program forked, at the end of the program, as Python would without
    the agent.
    """
    code = 0
    if error is not None:
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    _flush()
    os._exit(code & 0xFF)


def _choose_device(spec: RunSpec) -> None:
    if spec.device == "cpu" or spec.estimate:
        # An estimate simulates the device that it claims, and must not access the real one.
        os.environ.update({"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""})
    elif spec.device.startswith("cuda"):
        _, _, index = spec.device.partition(":")
        if index:
            os.environ["CUDA_VISIBLE_DEVICES"] = _visible(int(index))
        if not torch.cuda.is_available():
            raise DeviceError(
                f"the configuration requests device {spec.device}, but torch {torch.__version__} "
                "finds no such GPU"
            )


class DeviceError(RuntimeError):
    """The requested device is not available."""


def _visible(index: int) -> str:
    """Returns the value of CUDA_VISIBLE_DEVICES for this GPU, counted among those that are already
    visible; empty if it is not one of them.
    """
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is None:
        return str(index)
    # CUDA reads up to the first invalid device, such as -1.
    names = [name.strip() for name in variable.split(",")]
    visible = list(itertools.takewhile(_may_be_device, names))
    return visible[index] if index < len(visible) else ""


def _may_be_device(name: str) -> bool:
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))


def _choose_threads(spec: RunSpec) -> None:
    """Sets torch's number of threads from the configuration, because OpenMP read its variable when
    torch was loaded.
    """
    threads = spec.env.get("OMP_NUM_THREADS", "")
    if threads.isascii() and threads.isdigit() and 0 < int(threads) <= 4096:
        torch.set_num_threads(int(threads))


def _fill_standard_streams() -> None:
    """Reopens 0 to 2 if the program closed them.

    Otherwise the next opened file, such as the recording, would get one of these numbers, and
    prints would be written into it.
    """
    while True:
        try:
            descriptor = os.open(os.devnull, os.O_RDWR)
        except OSError:
            return
        if descriptor > 2:
            os.close(descriptor)
            return


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            Exception
        ):  # The program may have put anything there, or closed it.
            stream.flush()


def _no_core_dump() -> None:
    """Disables core dumps, so that a crash does not leave a file of many gigabytes."""
    if sys.platform != "win32":
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(
                resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])
            )
