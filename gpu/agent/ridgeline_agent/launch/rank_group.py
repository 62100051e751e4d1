"""The ranks of a launched run: starts their launcher, watches them, and reports how each ended."""

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
from .command import launch_command, with_ranks_paths
from .outcome import End, finished

_TICK_SECONDS = 0.1
# After a rank has failed or disappeared, the others usually wait for it until they are killed; some
# may have failed in the same way and be about to report it.
_AFTER_FAILURE_SECONDS = 2.0
# After a rank has finished, independent ranks may take longer; ranks that communicate cannot. A
# rank that waits for another in a meeting gives up before this, and writes what it has.
_AFTER_END_SECONDS = MEETING_TIMEOUT_SECONDS + 5.0
# Time for a launcher to exit before it is killed, because it may have ranks on other machines.
_EXIT_SECONDS = 1.0
_MAX_EXIT_SECONDS = 5.0
_KILL_SECONDS = 3.0
_MAX_RECENT_OUTPUT_BYTES = 300


class RankGroup:
    """A launched run. `out` is its folder as seen by this process."""

    def __init__(
        self,
        spec: RunSpec,
        request: dict[str, Any],
        out: str,
        boot: str,
        send: Callable[[dict[str, Any]], None],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._spec = spec
        self._ranks_request = with_ranks_paths(spec, request, out)
        # A rank's request, with the paths that the ranks see.
        self._ranks_spec = RunSpec.from_json({**self._ranks_request, "launcher": None})
        self._out = out
        self._boot = boot
        self._send = send
        self._is_cancelled = is_cancelled
        self._log = RunLog(out, spec.limits.log_bytes)
        self._last_progress: tuple[str, int, int] | None = None
        self._alive: set[int] = set()
        # The ranks that disappeared first. Others may have been killed because of them.
        self._first_gone: set[int] = set()
        self._kernel_kills = process_tree.kernel_memory_kills()
        self._recent_output = b""

    def run(self) -> dict[str, Any]:
        """Runs it to its end. Returns the event that ends it. No process is left then."""
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
                self._request_stacks(states)
            self._end_processes(launcher)
            reader.join(timeout=2.0)
            if not states and end.status is not None:
                # The launcher's output explains why it started nothing: a wrong option, a full
                # queue.
                last_line = self._recent_output.decode("utf-8", "replace").strip().splitlines()[-1:]
                end.message = ": ".join([end.message or "", *last_line])
            frames = [self._frames(rank) for rank in sorted(states)]
            self._show_failure(states)
            event = finished(self._spec.id, states, end, frames)
            if event["outcome"] != "complete":
                event["output"] = self._log.last_lines(self._spec.root)
            discarded = side_effects.take(dataclasses.replace(self._spec, out=self._out))
            if discarded is not None:
                event["side_effects"] = discarded
                self._log.write(side_effects.summary(discarded).encode())
            return event
        finally:
            self._log.close()
            self._tidy_up()

    def _clear(self) -> None:
        """Removes the files of a previous run in the same folder."""
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
        # It contains the configuration's variables, which may be secrets.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(self._ranks_request, file)

    def _start(self) -> subprocess.Popen[bytes]:
        command = launch_command(self._spec, self._boot, self._out)
        # As in an activated environment, whose torchrun is found first.
        search = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
        variables = {**os.environ, "PATH": os.pathsep.join(search), **self._spec.env}
        program = shutil.which(command[0], path=variables["PATH"])
        if program is None and command[0] == "torchrun":
            # The environment may borrow torch from another one, without its scripts.
            program = sys.executable
            command[:1] = [program, "-m", "torch.distributed.run"]
        program = program or command[0]
        if not os.path.exists(os.path.join(self._spec.cwd, program)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        command = side_effects.wrap_command(
            self._spec, [program, *command[1:]], self._boot, self._out
        )
        launcher = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=self._spec.cwd,
            start_new_session=True,
        )
        self._send({"event": "started", "id": self._spec.id, "pid": launcher.pid})
        return launcher

    def _read(self, pipe: IO[bytes]) -> None:
        while True:
            try:
                data = os.read(pipe.fileno(), 65536)
            except (OSError, ValueError):
                return
            if not data:
                return
            self._recent_output = (self._recent_output + data)[-_MAX_RECENT_OUTPUT_BYTES:]
            self._log.write(data)

    def _watch(self, launcher: subprocess.Popen[bytes]) -> End:
        """Waits until all ranks or the launcher have ended, or until the time limit that starts
        when one of them ends.
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
            self._send_progress(states)
            gone = self._gone(states)
            seconds_left = _time_limit_for_others(states, gone)
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
        """Returns this machine's ranks whose process has ended without reporting an outcome.
        Processes on other machines cannot be seen; only their launcher's report is available.
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

    def _send_progress(self, states: dict[int, RankState]) -> None:
        """Reports the progress of the slowest rank."""
        size = max((state.world_size for state in states.values()), default=0)
        if not states or len(states) < size:
            return
        slowest = min(states.values(), key=rank_states.progress_key)
        progress = (slowest.stage, slowest.done, slowest.total)
        if progress != self._last_progress and slowest.stage in STAGES:
            self._last_progress = progress
            self._send(
                {
                    "event": "progress",
                    "id": self._spec.id,
                    "stage": slowest.stage,
                    "done": slowest.done,
                    "total": slowest.total,
                }
            )

    def _request_stacks(self, states: dict[int, RankState]) -> None:
        below = set(process_tree.descendants(os.getpid()))
        for rank, state in states.items():
            if state.outcome is None and state.pid in below:
                folder = rank_states.rank_folder(self._out, rank)
                crash_report.request_stack(state.pid, folder)

    def _show_failure(self, states: dict[int, RankState]) -> None:
        """Copies the manifest of a failed rank to the run's folder."""
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
            # It leads a process group: a script that starts a launcher would not forward the
            # signal.
            with contextlib.suppress(OSError):
                getattr(os, "killpg", os.kill)(launcher.pid, signal.SIGTERM)
            if not _ends_within(launcher, _EXIT_SECONDS) and process_tree.ON_LINUX:
                # Its ranks may keep it from exiting; an srun must release its CPUs.
                process_tree.kill_descendants(
                    os.getpid(), _process_group(launcher.pid), seconds=_KILL_SECONDS
                )
                _ends_within(launcher, _MAX_EXIT_SECONDS)
        if process_tree.ON_LINUX:
            process_tree.kill_descendants(os.getpid(), frozenset(), seconds=_KILL_SECONDS)
        else:
            process_tree.kill_group(launcher.pid)
        launcher.poll()


def _ends_within(launcher: subprocess.Popen[bytes], seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        launcher.wait(seconds)
        return True
    return False


def _process_group(leader: int) -> frozenset[int]:
    """Returns the local processes in a leader's process group."""
    found = {leader}
    for process in process_tree.descendants(leader):
        with contextlib.suppress(OSError):
            if os.getpgid(process) == leader:
                found.add(process)
    return frozenset(found)


def _time_limit_for_others(states: dict[int, RankState], gone: set[int]) -> float | None:
    """Returns how long the other ranks get from now on, or None without a limit."""
    if rank_states.all_ended(states):
        return _AFTER_FAILURE_SECONDS
    outcomes = {state.outcome for state in states.values() if state.outcome is not None}
    if gone or outcomes & {"failed", "exited"}:
        return _AFTER_FAILURE_SECONDS
    return _AFTER_END_SECONDS if outcomes else None
