"""The ranks of one launched run: starts their launcher, watches them, and says how each ended."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from ..failure import crash_report
from ..process.run_log import RunLog
from ..process.run_state import describe_status
from ..protocol import rank_states
from ..protocol.host import STAGES
from ..protocol.rank_states import RankState
from ..protocol.spec import RunSpec
from ..record.alignment import MEETING_TIMEOUT_SECONDS
from ..side_effects import policy as side_effects
from ..system import process_tree
from .command import launch_command, paths_there
from .outcome import End, finished

_TICK_SECONDS = 0.1
# After one rank has failed or is gone, the others mostly wait for it until they are ended; some of
# them may have failed in the same way and be about to report it.
_AFTER_FAILURE_SECONDS = 2.0
# After one rank came to its end, ones that work apart may take longer; ones that exchange cannot.
# One that waits to meet it gives up before, and writes what it has.
_AFTER_END_SECONDS = MEETING_TIMEOUT_SECONDS + 5.0
# A launcher is asked to end before it is killed: it may have ranks on other machines.
_FAREWELL_SECONDS = 1.0
_LONGEST_FAREWELL_SECONDS = 5.0
_ENDING_SECONDS = 3.0
_MOST_LAST_WORDS = 300


class RankGroup:
    """One run. `out` is its folder as this process sees it."""

    def __init__(
        self,
        spec: RunSpec,
        request: dict[str, Any],
        out: str,
        boot: str,
        tell: Callable[[dict[str, Any]], None],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._spec = spec
        self._there = paths_there(spec, request, out)
        # Of a rank: its paths are those that the ranks see.
        self._ranks_spec = RunSpec.from_json({**self._there, "launcher": None})
        self._out = out
        self._boot = boot
        self._tell = tell
        self._is_cancelled = is_cancelled
        self._log = RunLog(out, spec.limits.log_bytes)
        self._last_progress: tuple[str, int, int] | None = None
        self._alive: set[int] = set()
        # The ranks that were gone first: others may have been ended for it.
        self._first_gone: set[int] = set()
        self._kernel_kills = process_tree.kernel_memory_kills()
        self._last_words = b""

    def run(self) -> dict[str, Any]:
        """Runs it to its end; the event that ends it. Nothing of it is left then."""
        self._clear()
        try:
            self._write_request()
            if not os.path.isdir(self._spec.cwd):
                why = f"folder {self._spec.cwd} does not exist on the launcher's machine"
                return finished(self._spec.id, {}, End("exited", why), [])
            try:
                launcher = self._start()
            except OSError as error:
                name = self._spec.launcher.command[:1] if self._spec.launcher else ()
                why = f"the launcher {' '.join(name)} could not be started: {error.strerror}"
                return finished(self._spec.id, {}, End("exited", why), [])
            reader = threading.Thread(target=self._read, args=(launcher.stdout,), daemon=True)
            reader.start()
            end = self._watch(launcher)
            states = rank_states.read_all(self._out)
            if end.outcome == "timeout":
                self._ask_for_places(states)
            self._end_processes(launcher)
            reader.join(timeout=2.0)
            if not states and end.status is not None:
                # Why it started nothing is for it to say: a wrong option, a full queue.
                said = self._last_words.decode("utf-8", "replace").strip().splitlines()[-1:]
                end.message = ": ".join([end.message or "", *said])
            frames = [self._frames(rank) for rank in sorted(states)]
            self._show_failure(states)
            event = finished(self._spec.id, states, end, frames)
            if event["outcome"] != "complete":
                event["output"] = self._log.last_lines(self._spec.root)
            kept_from_disk = side_effects.take(dataclasses.replace(self._spec, out=self._out))
            if kept_from_disk is not None:
                event["side_effects"] = kept_from_disk
                self._log.write(side_effects.in_words(kept_from_disk).encode())
            return event
        finally:
            self._log.close()
            self._tidy_up()

    def _clear(self) -> None:
        """Another run into the same folder starts anew."""
        shutil.rmtree(os.path.join(self._out, rank_states.FOLDER), ignore_errors=True)
        os.makedirs(os.path.join(self._out, rank_states.FOLDER), mode=0o700)
        for name in os.listdir(self._out):
            if name.startswith("rank-"):
                shutil.rmtree(os.path.join(self._out, name), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._out, "manifest.json"))

    def _tidy_up(self) -> None:
        shutil.rmtree(os.path.join(self._out, rank_states.FOLDER), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._out, rank_states.REQUEST))

    def _write_request(self) -> None:
        path = os.path.join(self._out, rank_states.REQUEST)
        # It holds the configuration's variables, which may be secrets.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(self._there, file)

    def _start(self) -> subprocess.Popen[bytes]:
        command = launch_command(self._spec, self._boot, self._out)
        # As in an environment that was activated: its torchrun is the one that is found.
        search = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
        variables = {**os.environ, "PATH": os.pathsep.join(search), **self._spec.env}
        program = shutil.which(command[0], path=variables["PATH"]) or command[0]
        if not os.path.exists(os.path.join(self._spec.cwd, program)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        command = side_effects.holding(self._spec, [program, *command[1:]], self._boot, self._out)
        launcher = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=self._spec.cwd,
            start_new_session=True,
        )
        self._tell({"event": "started", "id": self._spec.id, "pid": launcher.pid})
        return launcher

    def _read(self, pipe: IO[bytes]) -> None:
        while True:
            try:
                data = os.read(pipe.fileno(), 65536)
            except (OSError, ValueError):
                return
            if not data:
                return
            self._last_words = (self._last_words + data)[-_MOST_LAST_WORDS:]
            self._log.write(data)

    def _watch(self, launcher: subprocess.Popen[bytes]) -> End:
        """Waits until all ranks or the launcher have ended, or until the time is over that the
        ranks get after one of them ended.
        """
        limits = self._spec.limits
        began, since = time.monotonic(), time.time()
        first_end: float | None = None
        next_memory_check = 0.0
        while True:
            status = launcher.poll()
            states = rank_states.read_all(self._out)
            now = time.monotonic()
            if status is not None:
                return self._after_launcher(status, states)
            if self._is_cancelled():
                return End("cancelled", "cancelled")
            if limits.seconds is not None and now - began > limits.seconds:
                return End("timeout", f"stopped after {limits.seconds:g} s")
            self._tell_progress(states)
            gone = self._gone(states)
            seconds_left = _seconds_left_for_others(states, gone)
            if seconds_left is None:
                first_end = None
            elif first_end is None:
                first_end = now
            elif now - first_end > seconds_left:
                return End(None, None, gone=self._first_gone or gone)
            if limits.memory_bytes is not None and now > next_memory_check:
                next_memory_check = now + 2 * _TICK_SECONDS
                below = process_tree.descendants(os.getpid())
                held = process_tree.memory_bytes(below, limits.memory_bytes, since)
                if held > limits.memory_bytes:
                    return End(
                        "memory",
                        f"stopped: the ranks used {held} bytes of memory; the limit is "
                        f"{limits.memory_bytes}",
                    )
            time.sleep(_TICK_SECONDS)

    def _after_launcher(self, status: int, states: dict[int, RankState]) -> End:
        gone = {rank for rank, state in states.items() if state.outcome is None}
        killed = process_tree.kernel_memory_kills() > self._kernel_kills
        if gone and killed:
            return End("memory", "the machine ran out of memory, and the kernel killed the program")
        code = f"the launcher exited with {describe_status(status)}"
        return End(None, code, gone=self._first_gone or gone, status=status)

    def _gone(self, states: dict[int, RankState]) -> set[int]:
        """Ranks of this machine whose process has ended and that did not say how. Processes of
        other machines cannot be seen from here; what their launcher says of them has to do.
        """
        below = set(process_tree.descendants(os.getpid()))
        gone: set[int] = set()
        for rank, state in states.items():
            if state.pid in below:
                self._alive.add(rank)
            elif rank in self._alive and state.outcome is None:
                gone.add(rank)
        self._first_gone = self._first_gone or gone
        return gone

    def _tell_progress(self, states: dict[int, RankState]) -> None:
        """Tells of the rank that is least far."""
        size = max((state.world_size for state in states.values()), default=0)
        if not states or len(states) < size:
            return
        least = min(states.values(), key=rank_states.how_far)
        news = (least.stage, least.done, least.total)
        if news != self._last_progress and least.stage in STAGES:
            self._last_progress = news
            self._tell(
                {
                    "event": "progress",
                    "id": self._spec.id,
                    "stage": least.stage,
                    "done": least.done,
                    "total": least.total,
                }
            )

    def _ask_for_places(self, states: dict[int, RankState]) -> None:
        below = set(process_tree.descendants(os.getpid()))
        for rank, state in states.items():
            if state.outcome is None and state.pid in below:
                folder = rank_states.rank_folder(self._out, rank)
                crash_report.ask_for_place(state.pid, folder)

    def _show_failure(self, states: dict[int, RankState]) -> None:
        """Puts the manifest of a rank that failed where that of the run is looked for."""
        failed = [rank for rank, state in sorted(states.items()) if state.outcome == "failed"]
        if failed and failed[0] != 0:
            source = os.path.join(rank_states.rank_folder(self._out, failed[0]), "manifest.json")
            with contextlib.suppress(OSError):
                shutil.copyfile(source, os.path.join(self._out, "manifest.json"))

    def _frames(self, rank: int) -> list[dict[str, Any]]:
        folder = rank_states.rank_folder(self._out, rank)
        return crash_report.take_from(folder, self._ranks_spec)[0]

    def _end_processes(self, launcher: subprocess.Popen[bytes]) -> None:
        if launcher.poll() is None:
            # It leads a group: a script that starts a launcher would not pass the signal on.
            with contextlib.suppress(OSError):
                getattr(os, "killpg", os.kill)(launcher.pid, signal.SIGTERM)
            if not _ends_within(launcher, _FAREWELL_SECONDS) and process_tree.ON_LINUX:
                # Ranks here may keep it from its end; an srun has to give its processors back.
                process_tree.kill_below(os.getpid(), _group(launcher.pid), seconds=_ENDING_SECONDS)
                _ends_within(launcher, _LONGEST_FAREWELL_SECONDS)
        if process_tree.ON_LINUX:
            process_tree.kill_below(os.getpid(), frozenset(), seconds=_ENDING_SECONDS)
        else:
            process_tree.kill_group(launcher.pid)
        launcher.poll()


def _ends_within(launcher: subprocess.Popen[bytes], seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        launcher.wait(seconds)
        return True
    return False


def _group(leader: int) -> frozenset[int]:
    """The processes here that are of a leader's group."""
    found = {leader}
    for process in process_tree.descendants(leader):
        with contextlib.suppress(OSError):
            if os.getpgid(process) == leader:
                found.add(process)
    return frozenset(found)


def _seconds_left_for_others(states: dict[int, RankState], gone: set[int]) -> float | None:
    """How long the other ranks get from now on; None where there is no reason to hurry."""
    if rank_states.all_ended(states):
        return _AFTER_FAILURE_SECONDS
    outcomes = {state.outcome for state in states.values() if state.outcome is not None}
    if gone or outcomes & {"failed", "exited"}:
        return _AFTER_FAILURE_SECONDS
    return _AFTER_END_SECONDS if outcomes else None
