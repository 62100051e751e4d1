"""The supervisor's view of a run, and its final event."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from ..failure import crash_report
from ..protocol import trainer_state
from ..protocol.spec import RunSpec
from ..side_effects.policy import DiskWatch
from ..system import process_tree
from .run_log import RunLog

_MANIFEST_OUTCOMES = ("complete", "short", "failed")
# A crashed program's exit code on Windows is that of the exception, an NTSTATUS error.
_WINDOWS_EXCEPTION = 0xC0000000
_MAX_SCRIPTS = 2
# Seconds between two looks at what a program does before its first iteration.
_PLACE_SECONDS = 2.0
_MAX_MANIFEST_BYTES = 64 * 2**20


class Run:
    """The state of a run from the request to the `finished` event."""

    def __init__(self, spec: RunSpec, request: dict[str, Any]) -> None:
        self.spec = spec
        self.request = request
        self.sent = False
        self.pid: int | None = None
        # Start time by the wall clock, like file times.
        self.began: float | None = None
        self.progress: dict[str, Any] | None = None
        # Why the supervisor stopped it: outcome and message.
        self.verdict: tuple[str, str] | None = None
        # The outcome that the run itself reported, and its message.
        self.reported_outcome: tuple[str, str | None] | None = None
        # Whether a child process of the program was recorded and has reported its outcome.
        self.is_reported_by_child = False
        # The exit code, or the negative number of the signal that killed it.
        self.exit_status: int | None = None
        self.message: str | None = None
        self.ends: float | None = None
        self.next_memory_check = 0.0
        self.disk = DiskWatch(spec)
        self.next_file_check = 0.0
        self._next_place = 0.0
        self._place: tuple[dict[str, Any] | None, str | None] = (None, None)
        self.log = RunLog(spec.out, spec.limits.log_bytes)
        # The zygote writes this random marker after the run's last output.
        self.end_marker = os.urandom(16).hex().encode()
        self._incomplete = b""
        self._kernel_kills = process_tree.kernel_memory_kills()
        self._manifest_before = _modified(self._manifest)
        trainer_state.clear(spec.out)

    @property
    def is_running(self) -> bool:
        """Whether its program may be running."""
        return self.pid is not None and self.exit_status is None

    @property
    def _is_starting(self) -> bool:
        """Whether its first iteration has not ended."""
        progress = self.progress or {}
        return progress.get("stage") in (None, "starting") or (
            progress.get("stage") == "warm-up" and progress.get("done") == 0
        )

    @property
    def is_confined(self) -> bool:
        """Whether it is an estimate or a probe, which runs in the sandbox."""
        return self.spec.estimate or self.spec.probe is not None

    @property
    def _manifest(self) -> str:
        return os.path.join(self.spec.out, "ops.json" if self.spec.estimate else "manifest.json")

    def started(self, pid: int) -> None:
        """The process was started, and the time limit begins."""
        self.pid = pid
        self.began = time.time()
        self._next_place = time.monotonic() + _PLACE_SECONDS
        if self.spec.limits.seconds is not None:
            self.ends = time.monotonic() + self.spec.limits.seconds

    def exited(self, status: int) -> None:
        """The process has ended, with an exit code or the negative number of a signal."""
        # The recording is complete, and the supervisor ended the other processes.
        self.exit_status = 0 if self.is_reported_by_child else status

    def take_log(self, data: bytes) -> bool:
        """Takes output of the program. Returns True if it was the last of it."""
        data = self._incomplete + data
        end = data.find(self.end_marker)
        if end >= 0:
            self.log.write(data[:end])
            self._incomplete = b""
            return True
        # This piece may end with a part of the marker.
        keep = next(
            (
                size
                for size in range(len(self.end_marker) - 1, 0, -1)
                if data.endswith(self.end_marker[:size])
            ),
            0,
        )
        self._incomplete = data[len(data) - keep :]
        self.log.write(data[: len(data) - keep])
        return False

    def poll_trainer(self) -> dict[str, Any] | None:
        """Reads the progress of a recorded child process. Returns an event if it has changed."""
        if self.is_reported_by_child or self.is_confined:
            return None
        state = trainer_state.read(self.spec.out)
        if state is None:
            return None
        if state.outcome is not None:
            self.reported_outcome = (state.outcome, state.message)
            self.is_reported_by_child = True
        event = {
            "event": "progress",
            "id": self.spec.id,
            "stage": state.stage,
            "done": state.done,
            "total": state.total,
        }
        if event == self.progress:
            return None
        self.progress = event
        return event

    def poll_place(self) -> dict[str, Any] | None:
        """Looks at what the program does before its first iteration. Returns an event if that has
        changed.
        """
        now = time.monotonic()
        if (
            not self._is_starting
            or self.is_confined
            or self.spec.versions
            or now < self._next_place
        ):
            return None
        self._next_place = now + _PLACE_SECONDS
        place = crash_report.current_place(self.pid, self.spec)
        if place[0] is None or place == self._place:
            return None
        self._place = place
        frame, activity = place
        return {"event": "place", "id": self.spec.id, "frame": frame, "activity": activity}

    def timeout_message(self, processes: list[int]) -> str:
        """Returns the message for a run over its time limit. `processes` are those of the run."""
        at = ""
        if self.progress is not None:
            at = f", in the stage '{self.progress.get('stage')}' "
            at += f"({self.progress.get('done')} of {self.progress.get('total')})"
        text = f"stopped after {self.spec.limits.seconds:g} s{at}"
        why = trainer_state.why_nothing_trains(self.spec.out)
        scripts = process_tree.scripts(processes)
        if why is not None:
            text += f". {why[0].upper()}{why[1:]}"
        elif scripts:
            names = " and ".join(scripts[:_MAX_SCRIPTS])
            text += (
                f". It had started {names} as a subprocess, which is not profiled: profile that "
                "script itself"
            )
        return text

    def finished(self) -> dict[str, Any]:
        """Returns the event that ends the run. Call it only once, because it removes the crash
        report.
        """
        self.log.write(self._incomplete)
        frames, activity = crash_report.take(self.spec)
        outcome, message = self._outcome(frames)
        if outcome == "short" and (raised := trainer_state.take_failure(self.spec.out)) is not None:
            # The program continued without its child.
            outcome, message = "failed", f"in a child process: {raised}"
        trainer_state.clear(self.spec.out)
        status = self.exit_status
        progress = self.progress or {}
        return {
            "event": "finished",
            "id": self.spec.id,
            "outcome": outcome,
            "message": message,
            "signal": -status if status is not None and status < 0 else None,
            "code": status if status is not None and status >= 0 else None,
            "frames": frames if outcome in ("crashed", "timeout") else [],
            "activity": activity if outcome in ("crashed", "timeout") else None,
            "stage": progress.get("stage"),
            "done": progress.get("done", 0),
            "total": progress.get("total", 0),
            "output": [] if outcome == "complete" else self.log.last_lines(self.spec.root),
        }

    def _outcome(self, frames: list[dict[str, Any]]) -> tuple[str, str | None]:
        if self.verdict is not None:
            outcome, message = self.verdict
            return outcome, message + (_at(frames) if outcome == "timeout" else "")
        if self.reported_outcome is not None:
            return self.reported_outcome
        status = self.exit_status
        if _modified(self._manifest) != self._manifest_before:
            # The program closed the descriptor over which the run would have reported.
            written = _manifest_status(self._manifest)
            if written is not None:
                return written, None
        if self.message is not None:
            return "exited", self.message
        if status is not None and status < 0:
            if (
                -status == signal.SIGKILL
                and process_tree.kernel_memory_kills() > self._kernel_kills
            ):
                return "memory", "the machine ran out of memory, and the kernel killed the program"
            ended_by = describe_status(status)
            return "crashed", f"the program was terminated by {ended_by}{_at(frames)}"
        if status is not None and status >= _WINDOWS_EXCEPTION:
            return "crashed", f"the program was terminated by exception 0x{status:X}{_at(frames)}"
        return "exited", f"the program exited with code {status} before enough iterations ran"


def describe_status(status: int) -> str:
    """Describes an exit status."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"{signal.Signals(-status).name} (signal {-status})"
    except ValueError:
        return f"signal {-status}"


def _at(frames: list[dict[str, Any]]) -> str:
    if not frames:
        return ""
    innermost = frames[-1]
    return f" at {innermost['path']}:{innermost['line']} in {innermost['name']}"


def _modified(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _manifest_status(path: str) -> str | None:
    try:
        if os.path.getsize(path) > _MAX_MANIFEST_BYTES:
            return None
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
        # An estimate has `outcome`, which is "complete" or "partial".
        status = manifest.get("status", manifest.get("outcome"))
        status = "short" if status == "partial" else status
    except (OSError, ValueError, RecursionError, AttributeError):
        return None
    return status if status in _MANIFEST_OUTCOMES else None
