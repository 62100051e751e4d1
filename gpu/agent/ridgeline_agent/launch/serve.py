"""The process for runs with several ranks: `boot.py --launch` (docs/ranks.md).

It uses the agent's protocol like the supervisor, and serves `run` requests that have a launcher. It
contains no torch and no user code, so it can always answer, and it ends all processes of the
launcher. With `--carried FOLDER` it runs on another machine, and sends recordings back.
"""

from __future__ import annotations

import os
import platform
import queue
import shutil
import signal
import threading
from typing import Any

from ..process.supervise import PROTOCOL
from ..protocol.channel import Sender, read_objects, take_standard_streams
from ..protocol.spec import RunSpec, SpecError
from ..system import process_tree
from .rank_group import RankGroup
from .recording_transfer import finished_with_files
from .remote_launcher import RemoteLauncher

# Time for an srun to release its CPUs.
_EXIT_SECONDS = 1.5
_KILL_SECONDS = 0.8


def serve_launches(arguments: list[str], boot: str) -> None:
    """Serves the server until the end of its input. Does not return."""
    requests, events = take_standard_streams()
    signal.signal(signal.SIGINT, lambda *_: None)
    process_tree.adopt_orphans()
    remote_folder = (
        arguments[arguments.index("--carried") + 1] if "--carried" in arguments else None
    )
    launches = Launches(boot, Sender(events), remote_folder)
    threading.Thread(target=launches.read_requests, args=(requests,), daemon=True).start()
    try:
        launches.serve()
    except BrokenPipeError:
        launches.end_everything()  # The server is gone.


class Launches:
    """Serves launched runs one after the other. `read_requests` runs in a separate thread."""

    def __init__(self, boot: str, server: Sender, remote_folder: str | None) -> None:
        self._boot = boot
        self._server = server
        self._remote_folder = remote_folder
        self._pending: queue.Queue[dict[str, Any]] = queue.Queue(maxsize=16)
        self._cancelled: set[object] = set()

    def serve(self) -> None:
        """Reports that it is ready, and serves requests."""
        self._server.send(
            {
                "event": "ready",
                "protocol": PROTOCOL,
                "python": platform.python_version(),
                "torch": "",
                "cuda": False,
                "mode": "standby",
                "why": "a launcher starts the processes",
                "dropped_imports": [],
            }
        )
        while True:
            request = self._pending.get()
            finished = self._run(request)
            self._cancelled.discard(request.get("id"))
            self._server.send(finished)

    def read_requests(self, descriptor: int) -> None:
        """Reads requests, and ends everything at their end."""
        for request in read_objects(descriptor):
            op = request.get("op")
            if op == "exit":
                break
            if op == "run":
                self._pending.put(request)
            elif op == "cancel":
                self._cancelled.add(request.get("id"))
        self.end_everything()

    def end_everything(self) -> None:
        """Ends all processes, and on another machine removes all files."""
        process_tree.terminate_descendants(os.getpid(), seconds=_EXIT_SECONDS)
        process_tree.kill_descendants(os.getpid(), frozenset(), seconds=_KILL_SECONDS)
        if self._remote_folder is not None:
            shutil.rmtree(self._remote_folder, ignore_errors=True)
        os._exit(0)

    def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            spec = RunSpec.from_json(request)
            if spec.launcher is None:
                raise SpecError("launcher must be there")
        except SpecError as error:
            return refused(request.get("id"), f"the request cannot be run: {error}")
        identifier = request.get("id")

        def is_cancelled() -> bool:
            return identifier in self._cancelled

        try:
            if self._remote_folder is not None:
                out = os.path.join(self._remote_folder, "out")
                group = RankGroup(spec, request, out, self._boot, self._server.send, is_cancelled)
                return finished_with_files(group.run(), out, self._server.send)
            if spec.launcher.remote:
                return RemoteLauncher(
                    spec, request, self._boot, self._server.send, is_cancelled
                ).run()
            return RankGroup(
                spec, request, spec.out, self._boot, self._server.send, is_cancelled
            ).run()
        except BrokenPipeError:
            raise
        except OSError as error:
            return refused(identifier, f"the run could not be started: {error}")


def refused(identifier: object, message: str) -> dict[str, Any]:
    """Returns the outcome of a run that did not start."""
    return {
        "event": "finished",
        "id": identifier,
        "outcome": "exited",
        "message": message,
        "signal": None,
        "code": None,
        "frames": [],
    }
