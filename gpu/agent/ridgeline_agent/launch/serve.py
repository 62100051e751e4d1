"""The process that runs a program with many ranks: `boot.py --launch` (docs/ranks.md).

It speaks the agent's protocol as the supervisor does, and serves `run` requests that have a
launcher. It has no torch in it and no line of the user's program, so it can always answer, and it
ends whatever the launcher started. With `--carried FOLDER` it is on another machine, and sends home
what was recorded.
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

# For an srun to give its processors back.
_FAREWELL_SECONDS = 1.5
_ENDING_SECONDS = 0.8


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
        launches.end_everything()  # The server has gone.


class Launches:
    """One launched run after the other. `read_requests` has a thread of its own."""

    def __init__(self, boot: str, server: Sender, remote_folder: str | None) -> None:
        self._boot = boot
        self._server = server
        self._remote_folder = remote_folder
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue(maxsize=16)
        self._cancelled: set[object] = set()

    def serve(self) -> None:
        """Says that it is ready, and runs what is asked for."""
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
            request = self._waiting.get()
            finished = self._run(request)
            self._cancelled.discard(request.get("id"))
            self._server.send(finished)

    def read_requests(self, descriptor: int) -> None:
        """Takes requests, and ends everything at the end of them."""
        for request in read_objects(descriptor):
            op = request.get("op")
            if op == "exit":
                break
            if op == "run":
                self._waiting.put(request)
            elif op == "cancel":
                self._cancelled.add(request.get("id"))
        self.end_everything()

    def end_everything(self) -> None:
        """Leaves no process behind, and on another machine no file."""
        process_tree.ask_below(os.getpid(), seconds=_FAREWELL_SECONDS)
        process_tree.kill_below(os.getpid(), frozenset(), seconds=_ENDING_SECONDS)
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
    """The end of a run that did not begin."""
    return {
        "event": "finished",
        "id": identifier,
        "outcome": "exited",
        "message": message,
        "signal": None,
        "code": None,
        "frames": [],
    }
