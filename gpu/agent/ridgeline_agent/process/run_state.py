"""One run as the supervisor sees it, and what is said of it at its end."""

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
# Windows ends a program that crashed with the code of the exception, an NTSTATUS error.
_WINDOWS_EXCEPTION = 0xC0000000
_MOST_SCRIPTS = 2
_LARGEST_MANIFEST = 64 * 2**20


class Run:
    """From the request to the `finished` event."""

    def __init__(self, spec: RunSpec, request: dict[str, Any]) -> None:
        self.spec = spec
        self.request = request
        self.sent = False
        self.pid: int | None = None
        # On the clock of files.
        self.began: float | None = None
        # The last `progress` event.
        self.progress: dict[str, Any] | None = None
        # Why it was stopped from here: outcome and message.
        self.verdict: tuple[str, str] | None = None
        # What the run itself said at its end: outcome and message.
        self.reported_outcome: tuple[str, str | None] | None = None
        # Whether a child process that the program started was recorded, and told so.
        self.is_reported_by_child = False
        # The exit code, or the negative number of the signal that ended it.
        self.exit_status: int | None = None
        self.message: str | None = None
        self.ends: float | None = None
        self.next_memory_check = 0.0
        self.disk = DiskWatch(spec)
        self.next_look_at_files = 0.0
        self.log = RunLog(spec.out, spec.limits.log_bytes)
        # The zygote writes it after the run's last output. Nobody else knows it.
        self.mark = os.urandom(16).hex().encode()
        self._held_back = b""
        self._kernel_kills = process_tree.kernel_memory_kills()
        self._manifest_before = _modified(self._manifest)
        trainer_state.clear(spec.out)

    @property
    def is_on(self) -> bool:
        """Whether its program may be running."""
        return self.pid is not None and self.exit_status is None

    @property
    def is_confined(self) -> bool:
        """Whether it is one that nobody asked for, and runs in the sandbox."""
        return self.spec.estimate or self.spec.probe is not None

    @property
    def _manifest(self) -> str:
        return os.path.join(self.spec.out, "ops.json" if self.spec.estimate else "manifest.json")

    def started(self, pid: int) -> None:
        """The process is there, and its time runs."""
        self.pid = pid
        self.began = time.time()
        if self.spec.limits.seconds is not None:
            self.ends = time.monotonic() + self.spec.limits.seconds

    def exited(self, status: int) -> None:
        """The process has ended, with an exit code, or by a signal as a negative number."""
        # What was recorded is complete, and the rest was ended from here.
        self.exit_status = 0 if self.is_reported_by_child else status

    def take_log(self, data: bytes) -> bool:
        """Takes what was printed. True when that was the last of it."""
        data = self._held_back + data
        end = data.find(self.mark)
        if end >= 0:
            self.log.write(data[:end])
            self._held_back = b""
            return True
        # A part of the mark may be the end of this piece.
        keep = next(
            (size for size in range(len(self.mark) - 1, 0, -1) if data.endswith(self.mark[:size])),
            0,
        )
        self._held_back = data[len(data) - keep :]
        self.log.write(data[: len(data) - keep])
        return False

    def look_at_trainer(self) -> dict[str, Any] | None:
        """Looks how far a child process is that is recorded; the news, where there are any."""
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

    def timeout_message(self, processes: list[int]) -> str:
        """What is said of a run that took longer than it may. `processes` are those of the run."""
        at = ""
        if self.progress is not None:
            at = f", in the stage '{self.progress.get('stage')}' "
            at += f"({self.progress.get('done')} of {self.progress.get('total')})"
        text = f"stopped after {self.spec.limits.seconds:g} s{at}"
        why = trainer_state.why_none_trains(self.spec.out)
        scripts = process_tree.scripts(processes)
        if why is not None:
            text += f". {why[0].upper()}{why[1:]}"
        elif scripts:
            names = " and ".join(scripts[:_MOST_SCRIPTS])
            text += (
                f". It had started {names} as a subprocess, which is not profiled: profile that "
                "script itself"
            )
        return text

    def finished(self) -> dict[str, Any]:
        """The event that ends the run. Call it once: it clears the crash report away."""
        self.log.write(self._held_back)
        frames, activity = crash_report.take(self.spec)
        outcome, message = self._outcome(frames)
        if outcome == "short" and (raised := trainer_state.take_failure(self.spec.out)) is not None:
            # The program went on without its child.
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
            # The stage that it was in, and how far.
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
            # The program closed the descriptor over which the run would have said so.
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
            return "crashed", f"the program was terminated by exception 0x{status}{_at(frames)}"
        return "exited", f"the program exited with code {status} before enough iterations ran"


def describe_status(status: int) -> str:
    """An exit status in words."""
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
        if os.path.getsize(path) > _LARGEST_MANIFEST:
            return None
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
        # An estimate says `outcome`, which is "complete" or "partial".
        status = manifest.get("status", manifest.get("outcome"))
        status = "short" if status == "partial" else status
    except (OSError, ValueError, RecursionError, AttributeError):
        return None
    return status if status in _MANIFEST_OUTCOMES else None
