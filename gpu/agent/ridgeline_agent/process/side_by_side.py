"""Versions of one program that take turns of a few iterations, so that what slows the machine down
slows them all.

Each version is a process of its own below the run's, which gives them their turns. Only one of them
does anything at a time: first each comes as far as its first timed iteration, then they go round,
and at the end each is profiled.
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
    """What a version knows of the others: when it is its turn. It takes the run's events."""

    def __init__(self, go: int, told: int, iterations: int) -> None:
        self._go = go
        self._told = Sender(told)
        self._iterations = iterations

    def wait(self) -> None:
        """Waits for a turn. Where nobody gives one any more, the process ends."""
        if os.read(self._go, 1) != _GO:
            os._exit(0)

    def timed(self, iterations: int) -> None:
        """So many have been timed. Where that fills a turn, the others have theirs."""
        if iterations % self._iterations == 0:
            self._told.send(_OVER)
            self.wait()

    def send(self, event: dict[str, Any]) -> None:
        """Tells how the version ended (channel.Events). How far it is concerns nobody."""
        if event.get("event") == "outcome":
            self._told.send(event)


class _Version:
    """A version as the process that gives the turns sees it."""

    def __init__(self, process: int, go: int, told: int) -> None:
        self.has_ended = False
        self._process = process
        self._go = go
        self._events = read_objects(told)

    def take(self, host: Host) -> None:
        """Gives it a turn, and waits until that is over or the version has ended. One that ended
        badly ends the run.
        """
        with contextlib.suppress(OSError):  # One that is no more says nothing below.
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
    """Runs the versions of `spec`, each by `run` in a process of its own, and ends this one."""
    why = why_unsafe() if process_tree.ON_LINUX else "this system does not fork runs"
    if why is not None:
        host.finish("exited", f"versions cannot run side by side: {why}")
    giver = os.getpid()
    versions: list[_Version] = []
    others: list[int] = []
    for version in spec.versions:
        (go, give), (hear, tell) = _pipe(), _pipe()
        process = os.fork()
        if process == 0:
            try:
                process_tree.die_with_parent(giver)
                # With an end of somebody else's pipe here, nobody would notice that one's end.
                for descriptor in (*others, give, hear):
                    os.close(descriptor)
                turn = Turn(go, tell, spec.turn)
                turn.wait()
                alone = dataclasses.replace(
                    spec,
                    out=version.out,
                    overlay=version.overlay,
                    batch_size=version.batch_size,
                    versions=(),
                )
                run(alone, turn)
            finally:
                os._exit(70)
        os.close(go)
        os.close(tell)
        others += [give, hear]
        versions.append(_Version(process, give, hear))
    while left := [one for one in versions if not one.has_ended]:
        for one in left:
            one.take(host)
    host.finish("complete")


def _pipe() -> tuple[int, int]:
    """The reading and the writing end, with numbers that no program closes for its own."""
    ends = os.pipe()
    reading, writing = map(take_descriptor, ends)
    for end in ends:
        os.close(end)
    return reading, writing
