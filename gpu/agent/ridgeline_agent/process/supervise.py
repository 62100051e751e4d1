"""The supervisor, the process that communicates with the server.

It contains neither torch nor user code, so it can report and end the other processes whatever
happens to them. Below it is one worker (worker.py), which forks for each run, or serves one run
itself.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import IO, Any

from ..failure import crash_report
from ..protocol.channel import Sender, read_objects, take_standard_streams
from ..protocol.spec import RunSpec, SpecError
from ..sandbox import written_files
from ..side_effects import policy as side_effects
from ..system import process_tree
from .run_state import Run, describe_status

PROTOCOL = 1

_TICK_SECONDS = 0.2
# An import that takes longer is assumed to hang, and is left to the program itself.
_PREPARE_TIMEOUT_SECONDS = 120.0
# If a module prevents forking after so long, the imports are left to the program: to start over
# without it takes as long again, and the next module may do the same.
_LONG_IMPORTS_SECONDS = 10.0
_MAX_WORKERS_LOST = 20
_MAX_IDLE_LOG_BYTES = 8192
# Events that are accepted from the worker's pipe while a program runs, which could write to it too:
# none of them names a process to be spared or signalled, or ends more than the run.
_PROGRAM_EVENTS = ("progress", "outcome", "exited")
# Limits for logs and similar files. Each file also has a limit (sandbox/confinement.py).
_MAX_WRITTEN_BYTES = 2**30
_MAX_WRITTEN_FILES = 10_000
_MAX_PROCESSES = 500


def supervise(arguments: list[str], boot: str) -> None:
    """Serves the server until the end of its input. Does not return."""
    requests, events = take_standard_streams()
    # In a terminal, an interrupt reaches the whole process group. The server handles it. (This is a
    # handler, because an ignored signal would stay ignored in child programs.)
    signal.signal(signal.SIGINT, lambda *_: None)
    process_tree.adopt_orphans()
    supervisor = Supervisor(boot, Sender(events), arguments)
    threading.Thread(target=supervisor.read_requests, args=(requests,), daemon=True).start()
    try:
        supervisor.serve()
    except BrokenPipeError:
        supervisor.end_everything()  # The server is gone.


class Supervisor:
    """The state between the server and the worker. Only the main thread changes it, except for
    `end_everything`.
    """

    def __init__(self, boot: str, server: Sender, arguments: list[str]) -> None:
        self._boot = boot
        self._server = server
        self._cuda = "--cuda" in arguments
        # Why runs are not forked, or None if they are.
        self._standby_reason: str | None = None
        if "--standby" in arguments:
            self._standby_reason = "on request"
        elif not process_tree.ON_LINUX:
            self._standby_reason = f"on {sys.platform}, forking after loading torch is not safe"
        # Messages of the reader threads. Bounded, so that a program blocks if it prints faster than
        # its output is read.
        self._inbox: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=64)
        self._worker: subprocess.Popen[bytes] | None = None
        self._requests: Sender | None = None
        self._ending = False  # whether the supervisor itself ended the worker
        self._lost = 0
        self._ready = False
        self._warm: int | None = None
        self._prepare: dict[str, Any] | None = None
        self._prepare_pending = False  # not yet sent to the worker
        self._replay = False  # must be sent again to a new worker
        self._prepare_began: float | None = None
        self._importing: str | None = None
        self._dropped: dict[str, str] = {}
        self._run: Run | None = None
        self._recent_log: deque[bytes] = deque(maxlen=16)

    def serve(self) -> None:
        """The main loop. All events come out of one queue."""
        side_effects.sweep()
        self._start_worker()
        while True:
            try:
                # When idle there is nothing to poll, and the machine may sleep.
                watching = self._run is not None or self._prepare_began is not None
                kind, value = self._inbox.get(timeout=_TICK_SECONDS if watching else None)
            except queue.Empty:
                kind, value = "tick", None
            if kind == "request":
                self._on_request(value)
            elif kind == "event":
                self._on_event(value)
            elif kind == "log":
                self._on_log(value)
            elif kind == "worker ended":
                self._on_worker_end(value)
            self._watch_limits()

    def read_requests(self, descriptor: int) -> None:
        """Reads the server's requests in a separate thread, so that the end of its input is always
        noticed.
        """
        for request in read_objects(descriptor):
            if request.get("op") == "exit":
                break
            self._inbox.put(("request", request))
        self.end_everything()

    def end_everything(self) -> None:
        """Kills all child processes, and ends this one."""
        worker = self._worker
        if process_tree.ON_LINUX:
            process_tree.kill_descendants(os.getpid(), frozenset(), seconds=0.8)
        elif worker is not None:
            process_tree.kill_group(worker.pid)
        os._exit(0)

    # Requests of the server.

    def _on_request(self, request: dict[str, Any]) -> None:
        op = request.get("op")
        if op == "prepare":
            self._prepare = request
            self._prepare_pending = True
            self._dropped.clear()
            self._forward()
        elif op in ("run", "estimate", "probe"):
            self._on_run(request)
        elif op == "cancel":
            run = self._run
            if run is not None and run.spec.id == request.get("id"):
                self._stop(run, "cancelled", "cancelled")

    def _on_run(self, request: dict[str, Any]) -> None:
        identifier = request.get("id")
        if self._run is not None:
            self._refuse(identifier, "busy", f"run {self._run.spec.id} is not over yet")
            return
        try:
            spec = RunSpec.from_json(request)
        except SpecError as error:
            self._refuse(identifier, "exited", f"the request cannot be run: {error}")
            return
        self._run = Run(spec, request)
        self._forward()

    def _forward(self) -> None:
        """Sends the worker its next request. Only one at a time: it answers before it gets the
        next.
        """
        if not self._ready or self._requests is None:
            return
        run = self._run
        with contextlib.suppress(OSError):  # The reader thread reports a worker that just ended.
            if self._prepare_pending and self._prepare is not None and run is None:
                self._prepare_pending = False
                self._ready = False
                self._prepare_began = time.monotonic()
                self._requests.send({**self._prepare, "exclude": self._dropped})
            elif run is not None and not run.sent:
                run.sent = True
                self._requests.send(run.request)

    # Events of the worker.

    def _on_event(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        run = self._run
        if run is not None and run.is_running and kind not in _PROGRAM_EVENTS:
            return
        if kind == "ready":
            self._on_ready(event)
        elif kind == "importing":
            self._importing = event.get("module")
        elif kind == "unsafe":
            self._on_unsafe(event)
        elif kind == "unusable":
            self._server.send(event)
            self.end_everything()
        elif kind == "warm":
            self._warm = event.get("pid")
        elif run is None or event.get("id") != run.spec.id:
            return
        elif kind == "started":
            run.started(event.get("pid", 0))
            self._server.send({"event": "started", "id": run.spec.id, "pid": run.pid})
            if run.verdict is not None:
                self._end_processes(run)  # It was cancelled before it was started.
        elif kind == "progress" and run.verdict is None:
            run.progress = event
            self._server.send(event)
        elif kind == "outcome":
            self._poll_trainer(run)
            if not run.is_reported_by_child:
                run.reported_outcome = (str(event.get("outcome")), event.get("message"))
        elif kind == "exited" and run.sent:
            run.exited(event.get("status", 0))
            # Its remaining processes would keep printing, and take CPU time from the next run.
            self._end_processes(run)
            if self._requests is not None:
                # The waiting thread reports a zygote that just ended.
                with contextlib.suppress(OSError):
                    self._requests.send({"op": "mark", "mark": run.end_marker.decode()})
        elif kind == "refused":
            # The zygote is no longer safe to fork. The run has not begun, so a standby serves it.
            self._standby_reason = str(event.get("why"))
            run.sent = False
            self._kill_worker()

    def _on_ready(self, event: dict[str, Any]) -> None:
        self._lost = 0
        self._ready = True
        self._importing = None
        self._prepare_began = None
        if self._replay and not event.get("prepared"):
            # A new worker has not imported what the previous one had. It sends `ready` after that,
            # unless a run is waiting, which would import it anyway.
            self._replay = False
            self._prepare_pending = True
            if self._run is None:
                self._forward()
                return
        self._server.send(
            {
                "event": "ready",
                "protocol": PROTOCOL,
                "python": event.get("python"),
                "torch": event.get("torch"),
                "cuda": event.get("cuda"),
                "sandbox": event.get("sandbox"),
                "mode": "fork" if self._standby_reason is None else "standby",
                "why": self._standby_reason,
                "dropped_imports": [
                    {"module": module, "why": why}
                    for module, why in {**self._dropped, **event.get("dropped", {})}.items()
                ],
            }
        )
        self._forward()

    def _on_unsafe(self, event: dict[str, Any]) -> None:
        module, why = event.get("module"), str(event.get("why"))
        if isinstance(module, str):
            self._dropped[module] = why
            is_long = self._preparing_seconds() > _LONG_IMPORTS_SECONDS
            if self._prepare is not None and is_long:
                self._prepare = {**self._prepare, "preimport": False}
        else:
            self._standby_reason = why
        self._kill_worker()

    def _preparing_seconds(self) -> float:
        """Returns how long the worker has been importing; 0 if it is not."""
        return 0.0 if self._prepare_began is None else time.monotonic() - self._prepare_began

    def _on_log(self, data: bytes) -> None:
        run = self._run
        if run is None or not run.sent:
            self._recent_log.append(data[-_MAX_IDLE_LOG_BYTES:])
        elif run.take_log(data):
            self._complete(run)

    def _on_worker_end(self, status: int) -> None:
        run = self._run
        self._requests = None
        self._lost += 1
        if run is not None and run.sent:
            if run.exit_status is None:
                run.exited(status)
                if self._standby_reason is None:
                    run.message = "the process that starts runs was terminated, and the run with it"
            self._complete(run)
        elif self._importing is not None and not self._ending:
            # An import that ends or crashes the process: the program may do that, but the zygote
            # skips it.
            self._dropped[self._importing] = (
                f"the process exited during import ({describe_status(status)})"
            )
        elif self._lost > _MAX_WORKERS_LOST:
            printed = b"".join(self._recent_log)[-2000:].decode("utf-8", "replace").strip()
            why = f"the agent process exits at startup ({describe_status(status)}). {printed}"
            self._server.send({"event": "unusable", "message": why})
            self.end_everything()
        self._start_worker()

    # The run.

    def _watch_limits(self) -> None:
        now = time.monotonic()
        if self._preparing_seconds() > _PREPARE_TIMEOUT_SECONDS:
            self._prepare_began = None
            if self._importing is not None:
                seconds = f"{_PREPARE_TIMEOUT_SECONDS:g} s"
                self._dropped[self._importing] = f"import did not finish within {seconds}"
            self._kill_worker()
        run = self._run
        if run is None or run.verdict is not None or run.exit_status is not None:
            return
        if run.is_running:
            self._poll_trainer(run)
            if (place := run.poll_place()) is not None:
                self._server.send(place)
        if run.ends is not None and now > run.ends:
            crash_report.request_stack(run.pid, run.spec.out)
            self._stop(run, "timeout", run.timeout_message(self._processes_of_run()))
        elif run.spec.limits.memory_bytes is not None and now > run.next_memory_check:
            run.next_memory_check = now + _TICK_SECONDS
            limit = run.spec.limits.memory_bytes
            held = process_tree.memory_bytes(
                self._processes_of_run(), limit, run.began or time.time()
            )
            if held > limit:
                self._stop(
                    run, "memory", f"stopped: it used {held} bytes of memory; the limit is {limit}"
                )
        if run.sent and (why := run.disk.why_stop()) is not None:
            self._stop(run, "exited", why)
        if run.is_confined and now > run.next_file_check:
            run.next_file_check = now + _TICK_SECONDS
            processes = self._processes_of_run()
            if len(processes) > _MAX_PROCESSES:
                self._stop(run, "exited", f"stopped: it started {len(processes)} processes")
            files, size = written_files.count(run.spec.out, processes, _MAX_WRITTEN_FILES)
            if files >= _MAX_WRITTEN_FILES or size > _MAX_WRITTEN_BYTES:
                self._stop(run, "exited", f"stopped: it wrote {files} files with {size} bytes")

    def _poll_trainer(self, run: Run) -> None:
        """If a child process of the program is recorded, the run ends with that recording."""
        if run.is_reported_by_child:
            return
        event = run.poll_trainer()
        if event is not None and run.verdict is None:
            self._server.send(event)
        if run.is_reported_by_child and run.verdict is None:
            self._end_processes(run)

    def _processes_of_run(self) -> list[int]:
        if not process_tree.ON_LINUX:
            return []
        below = process_tree.descendants(os.getpid())
        return (
            below
            if self._standby_reason is not None
            else [one for one in below if one not in self._persistent_processes()]
        )

    def _persistent_processes(self) -> frozenset[int]:
        """Returns the processes that outlive a run: in fork mode the zygote, and the child with a
        CUDA context.
        """
        persistent = {self._worker.pid} if self._worker is not None else set()
        if self._warm is not None and (self._run is None or self._run.pid != self._warm):
            persistent.add(self._warm)
        return frozenset(persistent)

    def _stop(self, run: Run, outcome: str, message: str) -> None:
        if run.verdict is not None or run.reported_outcome is not None:
            return
        run.verdict = (outcome, message)
        if not run.sent:
            self._complete(run)
        elif run.pid is not None:
            self._end_processes(run)

    def _end_processes(self, run: Run) -> None:
        if self._standby_reason is not None:
            self._kill_worker()
        else:
            process_tree.kill_descendants(os.getpid(), self._persistent_processes())

    def _complete(self, run: Run) -> None:
        finished = run.finished()
        discarded = side_effects.take(run.spec)
        if discarded is not None:
            finished["side_effects"] = discarded
            run.log.write(side_effects.summary(discarded).encode())
        run.log.close()
        self._run = None
        self._server.send(finished)
        self._forward()

    def _refuse(self, identifier: object, outcome: str, message: str) -> None:
        self._server.send(
            {
                "event": "finished",
                "id": identifier,
                "outcome": outcome,
                "message": message,
                "signal": None,
                "code": None,
                "frames": [],
            }
        )

    # The worker.

    def _start_worker(self) -> None:
        self._ready = False
        self._ending = False
        self._replay = self._prepare is not None and not self._prepare_pending
        self._warm = None
        self._importing = None
        self._prepare_began = None
        mode = ["--worker", str(os.getpid())]
        if self._standby_reason is not None:
            mode.append("--standby")
        if self._cuda:
            mode.append("--cuda")
        worker = subprocess.Popen(
            [sys.executable, "-u", self._boot, *mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A new session: an interrupt in the terminal is not for the user's program.
            start_new_session=True,
        )
        self._worker = worker
        if worker.stdin is None or worker.stdout is None or worker.stderr is None:
            raise AssertionError("the worker was started with pipes")
        self._requests = Sender(worker.stdin.fileno())
        readers = (
            threading.Thread(target=self._read_events, args=(worker.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(worker.stderr,), daemon=True),
        )
        for reader in readers:
            reader.start()
        threading.Thread(target=self._wait_for_end, args=(worker, readers), daemon=True).start()

    def _kill_worker(self) -> None:
        """Kills the worker and its descendants. `_on_worker_end` handles the rest."""
        self._ending = True
        worker = self._worker
        if worker is None:
            return
        if process_tree.ON_LINUX:
            worker.kill()
            process_tree.kill_descendants(os.getpid(), frozenset({worker.pid}))
        else:
            process_tree.kill_group(worker.pid)

    def _wait_for_end(
        self, worker: subprocess.Popen[bytes], readers: tuple[threading.Thread, ...]
    ) -> None:
        """Reports the worker's end, after all its events and output, because the queue keeps the
        order.
        """
        status = worker.wait()
        # Remaining processes of the worker would keep its pipes open.
        if process_tree.ON_LINUX:
            process_tree.kill_descendants(os.getpid(), frozenset({worker.pid}))
        else:
            process_tree.kill_group(worker.pid)
        for reader in readers:
            reader.join(timeout=2.0)
        self._inbox.put(("worker ended", status))

    def _read_events(self, pipe: IO[bytes]) -> None:
        for event in read_objects(pipe.fileno()):
            self._inbox.put(("event", event))

    def _read_log(self, pipe: IO[bytes]) -> None:
        while True:
            try:
                data = os.read(pipe.fileno(), 65536)
            except OSError:
                return
            if not data:
                return
            self._inbox.put(("log", data))
