"""One JSON object a line, over a descriptor: how the parts of the agent and the server speak."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, Protocol

# A longer line is no request. Without an end to it, a mistaken peer could fill the memory.
LONGEST_LINE = 16 * 2**20
_CHUNK = 65536
# Programs that close "all" descriptors often stop at a small number; programs that open files get
# small ones.
_LEAST_DESCRIPTOR = 100


class Events(Protocol):
    """Takes what a run tells."""

    def send(self, event: dict[str, Any]) -> None:
        """Takes one event. Raises OSError where nobody listens any more."""


class Sender:
    """Writes events. Nothing is buffered, so that an `os._exit` right after loses nothing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._identity = _identity(descriptor)

    @property
    def descriptor(self) -> int:
        """What it writes to."""
        return self._descriptor

    def send(self, event: dict[str, Any]) -> None:
        """Writes one event. Raises OSError where the pipe is closed or is another file by now."""
        if _identity(self._descriptor) != self._identity:
            # The user's program closed it and opened something else under its number.
            raise BrokenPipeError("the protocol's file descriptor was closed")
        write_all(self._descriptor, json.dumps(event).encode("ascii") + b"\n")


def read_objects(descriptor: int) -> Iterator[dict[str, Any]]:
    """The JSON objects that come in until the end of the file. Lines that are none are left out."""
    rest = b""
    skipping = False
    while True:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except OSError:
            return
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if skipping or len(line) > LONGEST_LINE:
                skipping = False
                continue
            if (value := _parse(line)) is not None:
                yield value
        if len(rest) > LONGEST_LINE:
            rest, skipping = b"", True


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of it, also to a pipe that somebody made non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            os.set_blocking(descriptor, True)


def take_descriptor(descriptor: int) -> int:
    """A copy of it with a high number that no program started from here inherits."""
    if sys.platform != "win32":
        import fcntl

        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LEAST_DESCRIPTOR)
    return os.dup(descriptor)


def take_standard_streams() -> tuple[int, int]:
    """Takes 0 and 1 for the protocol, and leaves an empty input and the error stream in their
    places.
    """
    requests, events = take_descriptor(0), take_descriptor(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return requests, events


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return None
    return value if isinstance(value, dict) else None


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
