"""Compares versions of a program that take turns of a few iterations, so that a slow moment of the
machine slows all of them.

Each version is a child of the run's process, which schedules the turns. Only one of them is active
at a time: first each runs up to its first timed iteration, then they take turns, and at the end
each is profiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any, NoReturn

from ..protocol.channel import Sender, read_objects, take_descriptor
from ..protocol.host import Host
from ..protocol.spec import RunSpec
from ..system import process_tree
from .zygote import why_unsafe

_GO = b"g"
_OVER = {"event": "turn"}


class Turn:
    """A version's view: waits for its turn, and receives the run's events."""

    def __init__(self, go: int, events: int, iterations: int) -> None:
        self._go = go
        self._sender = Sender(events)
        self._iterations = iterations

    def wait(self) -> None:
        """Waits for a turn. Ends the process if the scheduler is gone."""
        if os.read(self._go, 1) != _GO:
            os._exit(0)

    def timed(self, iterations: int) -> None:
        """Reports the number of timed iterations. After a full turn, the other versions have
        theirs.
        """
        if iterations % self._iterations == 0:
            self._sender.send(_OVER)
            self.wait()

    def send(self, event: dict[str, Any]) -> None:
        """Forwards the version's outcome (channel.Events). Progress is not reported."""
        if event.get("event") == "outcome":
            self._sender.send(event)


class _Version:
    """The scheduler's view of a version."""

    def __init__(self, process: int, go: int, events: int) -> None:
        self.has_ended = False
        self._process = process
        self._go = go
        self._events = read_objects(events)

    def take(self, host: Host) -> None:
        """Gives it a turn, and waits until the turn is over or the version has ended. A version
        that failed ends the run.
        """
        with contextlib.suppress(OSError):  # A version that is gone sends no event below.
            os.write(self._go, _GO)
        event = next(self._events, None)
        if event is not None and event.get("event") == "turn":
            return
        self.has_ended = True
        _, status = os.waitpid(self._process, 0)
        if event is None:
            code = os.waitstatus_to_exitcode(status)
            host.finish("exited", f"a version exited early with code {code}")
        if event.get("outcome") != "complete":
            host.finish(str(event.get("outcome")), event.get("message"))


def run_side_by_side(
    spec: RunSpec, host: Host, run: Callable[[RunSpec, Turn], NoReturn]
) -> NoReturn:
    """Runs the versions of `spec`, each with `run` in a child process, and ends this process."""
    why = why_unsafe() if process_tree.ON_LINUX else "this system does not fork runs"
    if why is not None:
        host.finish("exited", f"versions cannot run side by side: {why}")
    scheduler = os.getpid()
    versions: list[_Version] = []
    others: list[int] = []
    for version in spec.versions:
        (go, grant), (receive, report) = _pipe(), _pipe()
        process = os.fork()
        if process == 0:
            try:
                process_tree.die_with_parent(scheduler)
                # An inherited pipe end of another version would hide the end of that version.
                for descriptor in (*others, grant, receive):
                    os.close(descriptor)
                turn = Turn(go, report, spec.turn)
                turn.wait()
                version_spec = dataclasses.replace(
                    spec,
                    out=version.out,
                    overlay=version.overlay,
                    batch_size=version.batch_size,
                    versions=(),
                )
                run(version_spec, turn)
            finally:
                os._exit(70)
        os.close(go)
        os.close(report)
        others += [grant, receive]
        versions.append(_Version(process, grant, receive))
    while running := [one for one in versions if not one.has_ended]:
        for one in running:
            one.take(host)
    host.finish("complete")


def _pipe() -> tuple[int, int]:
    """Returns the reading and the writing end, with high numbers that programs do not close."""
    ends = os.pipe()
    reading, writing = map(take_descriptor, ends)
    for end in ends:
        os.close(end)
    return reading, writing
